"""The table of workers: a row for each process whose engine claims runs, updated now and then.

For operators, who are warned when no worker runs. No claim and no lease depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, func, insert, select, update

from billhook.inbox.schema import worker

__all__ = ["KEEP_FOR", "WorkerRecord", "last_seen_at", "record", "remove"]

KEEP_FOR = timedelta(days=1)
"""How long a row is kept after its worker was killed, or its machine lost."""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A process that claims runs. `owner` is its name in leases, `handlers` their number, if known."""

    owner: str
    engine: str
    handlers: int | None
    started_at: datetime


def record(connection: Connection, seen: WorkerRecord, now: datetime) -> None:
    """Record that a worker is alive, and delete the rows of workers that were not seen for long."""
    values = {"handlers": seen.handlers, "seen_at": now}
    changed = connection.execute(update(worker).where(worker.c.owner == seen.owner).values(**values))
    if not changed.rowcount:
        first = {"owner": seen.owner, "engine": seen.engine, "started_at": seen.started_at}
        connection.execute(insert(worker).values(**first, **values))
    # Skip rows that another worker is deleting or writing.
    lost = select(worker.c.owner).where(worker.c.seen_at < now - KEEP_FOR).with_for_update(skip_locked=True)
    connection.execute(delete(worker).where(worker.c.owner.in_(lost)))


def remove(connection: Connection, owner: str) -> None:
    """Delete the row of a worker that stopped in order."""
    connection.execute(delete(worker).where(worker.c.owner == owner))


def last_seen_at(connection: Connection) -> datetime | None:
    """Return when any worker was last seen; None if there is none, or all stopped in order."""
    found: datetime | None = connection.execute(select(func.max(worker.c.seen_at))).scalar_one()
    return found
