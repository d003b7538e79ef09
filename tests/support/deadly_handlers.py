"""Handlers that end their process in several ways, and good ones beside them; loaded by real workers.

What they do is noted in the working folder: a line with a word and the delivery's key.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from typing import Any

from sqlalchemy import update

from billhook import Delivery, Handlers
from billhook.events import InvoiceApproved, PingTest
from billhook.inbox.running import leases
from billhook.inbox.tables.schema import run

WAYS = {
    "exits": lambda: os._exit(137),
    "aborts": os.abort,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "signalled": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "faults": lambda: ctypes.string_at(0),
}

handlers = Handlers()
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def note(word: str, delivery: Delivery) -> None:
    """Write a whole line, whoever else writes."""
    descriptor = os.open("notes.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{word} {delivery.key}\n".encode())
    os.close(descriptor)


def do(delivery: Delivery) -> None:
    """What the key says: end the process, at once or after so many milliseconds, or work for a moment."""
    note("begun", delivery)
    kind, _, milliseconds = delivery.key.partition("-")
    if kind == "late":
        time.sleep(int(milliseconds) / 1_000)
        WAYS["exits"]()
    WAYS.get(kind, lambda: None)()
    time.sleep(0.1)
    note("ended", delivery)


@handlers.on(PingTest, name="act")
def act(event: PingTest, delivery: Delivery) -> None:
    do(delivery)


@handlers.on(InvoiceApproved, name="crashes")
def crashes(event: InvoiceApproved, delivery: Delivery) -> None:
    note("begun", delivery)
    time.sleep(0.05)
    WAYS["exits"]()


@handlers.on(InvoiceApproved, name="sibling")
def sibling(event: InvoiceApproved, delivery: Delivery) -> None:
    time.sleep(0.1)
    note("ended", delivery)


def disable_suspects() -> None:
    """The control: attempts that were lost count wherever they were, and are due again together."""
    expire = leases.expire_leases

    def expire_as_any_other(connection: Any, now: Any, **more: Any) -> Any:
        handlers = expire(connection, now, **more)
        lost = update(run).where(run.c.runs_alone == 1, run.c.state == "due")
        connection.execute(lost.values(runs_alone=0, uncounted_attempts=0, due_at=now))
        return handlers

    leases.expire_leases = expire_as_any_other


if "DISABLE_SUSPECTS" in os.environ:
    disable_suspects()
