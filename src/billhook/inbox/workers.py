"""Who works on the inbox: a row for each process whose engine claims runs, written now and then.

For people, who are told when nobody works. No claim and no lease depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, func, insert, select, update

from billhook.inbox.schema import worker

__all__ = ["KEPT", "Worker", "forget", "last_seen_at", "note"]

KEPT = timedelta(days=1)
"""How long one that was not seen any more is kept: it was killed, or its machine is gone."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that claims runs. `owner` is its name in leases, `handlers` how many it has, if known."""

    owner: str
    engine: str
    handlers: int | None
    started_at: datetime


def note(connection: Connection, seen: Worker, now: datetime) -> None:
    """Write that a worker was seen now, and let go of those that were not for long."""
    values = {"handlers": seen.handlers, "seen_at": now}
    changed = connection.execute(update(worker).where(worker.c.owner == seen.owner).values(**values))
    if not changed.rowcount:
        first = {"owner": seen.owner, "engine": seen.engine, "started_at": seen.started_at}
        connection.execute(insert(worker).values(**first, **values))
    # What another one deletes just now, or writes, is passed over.
    lost = select(worker.c.owner).where(worker.c.seen_at < now - KEPT).with_for_update(skip_locked=True)
    connection.execute(delete(worker).where(worker.c.owner.in_(lost)))


def forget(connection: Connection, owner: str) -> None:
    """Delete a worker that ended in order."""
    connection.execute(delete(worker).where(worker.c.owner == owner))


def last_seen_at(connection: Connection) -> datetime | None:
    """Return when any worker was last seen; None if there is none, or each ended in order."""
    found: datetime | None = connection.execute(select(func.max(worker.c.seen_at))).scalar_one()
    return found
