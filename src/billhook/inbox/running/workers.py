"""The tables of workers and releases: who claims runs, since when, and with which release of the user's code.

Operators are told when no worker runs. Which process plans what depends on the lists of those that are alive:
see billhook.inbox.running.handler_lists. No lease depends on these tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, delete, func, null, or_, select, update

from billhook.basics.engine_kinds import DRAIN, Place, names_at
from billhook.inbox.tables.dialect import dialect_of
from billhook.inbox.tables.records import WorkerRecord
from billhook.inbox.tables.schema import release, worker

WORKER_KEPT_FOR = timedelta(days=1)
"""How long a worker's row is kept after it stopped, was killed, or its machine was lost."""
WORKER_SEEN_EVERY = timedelta(seconds=20)
"""How often a worker writes its row."""
WORKER_SILENT_AFTER = timedelta(minutes=1)
"""A worker that was not seen for so long is gone."""
IS_WORKER = and_(*(worker.c.engine != name for name in names_at(Place.REQUEST)))
"""The condition that a row is not that of a process which handles its own deliveries in its requests."""
RUNS_OR_DIED = and_(worker.c.stopped_at.is_(None), IS_WORKER)
"""The condition that a worker has not stopped in order."""


@dataclass(frozen=True, slots=True)
class WorkerFigures(WorkerRecord):
    """A process that claims runs, and has not stopped in order; `alive` if it was seen in the last minute.

    `died_at` is when it had died at the latest, if that is proven.
    """

    release: str | None
    seen_at: datetime
    died_at: datetime | None
    alive: bool


def release_number(connection: Connection, name: str, now: datetime) -> int:
    """Return the number of a release by its name; a new name is given one."""
    query = select(release.c.id).where(release.c.name == name)
    number: int | None = connection.execute(query).scalar()
    if number is not None:
        return number
    # Another process may insert it at the same time: then this waits for its commit.
    row = dialect_of(connection).insert(release).values(name=name, first_at=now)
    connection.execute(row.on_conflict_do_nothing(index_elements=[release.c.name]))
    made: int = connection.execute(query).scalar_one()
    return made


def record_worker(
    connection: Connection, seen: WorkerRecord, release_id: int, list_id: int | None, now: datetime
) -> None:
    """Record that a worker is alive, and delete the rows of those not seen for WORKER_KEPT_FOR."""
    values = {
        "handlers": seen.handlers,
        "release_id": release_id,
        "list_id": list_id,
        "seen_at": now,
        "stopped_at": null(),
        "died_at": null(),
    }
    row = dialect_of(connection).insert(worker).values(asdict(seen) | values)
    connection.execute(row.on_conflict_do_update(index_elements=[worker.c.owner], set_=values))
    # Skip rows that another worker is deleting or writing.
    lost = select(worker.c.owner).where(worker.c.seen_at < now - WORKER_KEPT_FOR)
    connection.execute(delete(worker).where(worker.c.owner.in_(lost.with_for_update(skip_locked=True))))


def record_stopping(connection: Connection, owner: str) -> None:
    """Record that a process plans nothing more: its list of handlers does not count for it any more."""
    connection.execute(update(worker).where(worker.c.owner == owner).values(list_id=None))


def record_stop(connection: Connection, owner: str, now: datetime) -> None:
    """Record that a worker stopped in order; a process that was none leaves no row."""
    connection.execute(delete(worker).where(worker.c.owner == owner, ~IS_WORKER))
    connection.execute(update(worker).where(worker.c.owner == owner).values(stopped_at=now, list_id=None))


def worker_times(connection: Connection) -> tuple[datetime | None, datetime | None]:
    """Return when any worker was last seen, and when the last stopped in order; None without one.

    The first is None too if the last has stopped in order.
    """
    last = func.max(worker.c.seen_at).filter(RUNS_OR_DIED), func.max(worker.c.stopped_at)
    seen_at, stopped_at = connection.execute(select(*last)).one()
    if seen_at is not None and stopped_at is not None and stopped_at - seen_at > WORKER_SILENT_AFTER:
        seen_at = None
    return seen_at, stopped_at


def last_seen_before(connection: Connection, at: datetime, *, stopped: bool) -> datetime | None:
    """Return when the last worker ended of those that were dead or silent at a time.

    That is when it died, or else when it was last seen. With `stopped`, workers that stopped in order count
    too. None if its row is gone, a day later.
    """
    ended_at = func.coalesce(worker.c.died_at, worker.c.seen_at)
    last = func.coalesce(worker.c.stopped_at, ended_at) if stopped else ended_at
    seen = select(func.max(last)).where(or_(worker.c.died_at <= at, last <= at - WORKER_SILENT_AFTER))
    found: datetime | None = connection.execute(seen if stopped else seen.where(RUNS_OR_DIED)).scalar()
    return found


def expects_worker(connection: Connection) -> bool:
    """Return whether a worker is expected to run, after the last that stopped in order.

    A web process with the engine `thread` has one again from its first request on. `worker --drain` does
    not count: cron starts it where there are no others, and an operator beside those that were stopped.
    """
    last = select(worker.c.engine).where(worker.c.stopped_at.is_not(None), worker.c.engine != DRAIN.name)
    engine = connection.execute(last.order_by(worker.c.stopped_at.desc()).limit(1)).scalar()
    return engine not in (None, *names_at(Place.WEB))


def worker_rows(connection: Connection) -> list[dict[str, Any]]:
    """Return the columns of every worker with the name of its release, by the time of their start."""
    columns = [column for column in worker.c if column.key not in ("release_id", "list_id")]
    query = select(*columns, release.c.name.label("release"))
    query = query.outerjoin(release, release.c.id == worker.c.release_id).where(IS_WORKER)
    return [
        dict(row)
        for row in connection.execute(query.order_by(worker.c.started_at, worker.c.owner)).mappings()
    ]


def is_alive(row: Mapping[str, Any], now: datetime) -> bool:
    """Return whether a worker has neither stopped in order nor died, and was seen in the last minute."""
    if row["stopped_at"] is not None or row["died_at"] is not None:
        return False
    return bool(now - row["seen_at"] < WORKER_SILENT_AFTER)


def read_sharing(connection: Connection, engine: str, list_id: int, now: datetime) -> tuple[str, ...]:
    """Return the owners of the live workers of an engine that have a list of handlers, by name."""
    same = (worker.c.engine == engine, worker.c.list_id == list_id)  # it has none once it is asked to stop
    alive = (worker.c.died_at.is_(None), worker.c.seen_at > now - WORKER_SILENT_AFTER)
    return tuple(sorted(connection.execute(select(worker.c.owner).where(*same, *alive)).scalars()))


def read_workers(connection: Connection, now: datetime) -> Sequence[WorkerFigures]:
    """Return the workers that have not stopped in order, the one that runs for longest first."""
    rows = [row for row in worker_rows(connection) if row["stopped_at"] is None]
    names = [each.name for each in fields(WorkerFigures) if each.name != "alive"]
    return [WorkerFigures(**{name: row[name] for name in names}, alive=is_alive(row, now)) for row in rows]
