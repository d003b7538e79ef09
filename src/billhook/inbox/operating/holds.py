"""Hold workers: one that is held starts no run until it is resumed. What it runs already goes on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import update

from billhook.basics.engine_kinds import THREAD, WORKER
from billhook.basics.printable import printable
from billhook.inbox.inbox import Inbox
from billhook.inbox.reading.worker_list import ListedWorker
from billhook.inbox.tables.schema import worker

HOLDABLE = (THREAD.name, WORKER.name)
"""The engines whose workers poll the inbox. Those of a broker are held by the broker's own commands."""


def hold_worker(inbox: Inbox, owner: str, now: datetime) -> bool:
    """Have a worker start no run from its next poll on; False if it was held already, or is not there."""
    own = (worker.c.owner == owner, worker.c.held_at.is_(None), worker.c.stopped_at.is_(None))
    return bool(inbox.apply(update(worker).where(*own).values(held_at=now)))


def resume_worker(inbox: Inbox, owner: str) -> bool:
    """Have a worker start runs again; False if it was not held. Call `inbox.waker.wake()` afterwards."""
    own = (worker.c.owner == owner, worker.c.held_at.is_not(None))
    return bool(inbox.apply(update(worker).where(*own).values(held_at=None)))


def place_of(one: ListedWorker) -> str:
    """Return where a worker runs, `HOST:PID`; its owner where that is not known."""
    return printable(f"{one.host}:{one.pid}" if one.host and one.pid is not None else one.owner)


def named(workers: Iterable[ListedWorker], name: str) -> list[ListedWorker]:
    """Return the live workers that a name is of: an owner, `HOST:PID`, or a process id alone."""
    return [
        one for one in workers if one.ended_at is None and name in (one.owner, place_of(one), str(one.pid))
    ]
