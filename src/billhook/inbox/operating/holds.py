"""Hold workers: one that is held starts no run until it is resumed. What it runs already goes on."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import update

from billhook.basics.engine_kinds import THREAD, WORKER
from billhook.inbox.inbox import Inbox
from billhook.inbox.tables.schema import worker

HOLDABLE = (THREAD.name, WORKER.name)
"""The engines whose workers poll the inbox. Workers of a broker are held by the broker's own commands."""


def hold_worker(inbox: Inbox, owner: str, now: datetime, why: str | None = None) -> bool:
    """Have a worker start no run from its next poll on; False if it was held already, or is not there.

    Of one that was held already only the reason changes, if there is one.
    """
    own = (worker.c.owner == owner, worker.c.stopped_at.is_(None))
    free = (*own, worker.c.held_at.is_(None))
    if inbox.apply(update(worker).where(*free).values(held_at=now, held_why=why)):
        return True
    if why:
        inbox.apply(update(worker).where(*own).values(held_why=why))
    return False


def resume_worker(inbox: Inbox, owner: str) -> bool:
    """Have a worker start runs again; False if it was not held. Call `inbox.waker.wake()` afterwards."""
    own = (worker.c.owner == owner, worker.c.held_at.is_not(None))
    return bool(inbox.apply(update(worker).where(*own).values(held_at=None, held_why=None)))
