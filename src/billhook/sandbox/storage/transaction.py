"""The unit of work of one request or one scheduled job: a database transaction and its fixed time."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from billhook.sandbox.options import SandboxOptions


def new_id(prefix: str) -> str:
    """Return a random unique id such as `cus_4f0e…`."""
    return f"{prefix}_{secrets.token_hex(10)}"


@dataclass(slots=True)
class Transaction:
    """A database transaction with the time at which all of its changes happen."""

    connection: Connection
    now: datetime
    """The sandbox clock's time, constant throughout the transaction."""
    real_now: datetime
    """The machine's time, by which deliveries are signed and retried."""
    options: SandboxOptions
    cause: str = "start"
    """What runs in it, as the log of events notes it: method and path of an operation, or a job and its
    subject."""
    enqueued: bool = False
    """True if deliveries became due: the sender is woken up after the commit."""
    scheduled: bool = False
    """True if a job was scheduled: the scheduler is woken up after the commit."""
