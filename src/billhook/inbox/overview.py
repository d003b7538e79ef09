"""Read the state of the inbox: backlog, failures, the deliveries of each type, the results of handlers.

All figures are from the inbox, never from the memory of one process. They take some milliseconds however
many deliveries are stored: backlog and failures are counted by partial indexes up to a limit, all else is
read from the counts by hour (see billhook.inbox.counts).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, func, select, text

from billhook.inbox import migrate
from billhook.inbox.counts import DURATION_BOUNDS, Counted
from billhook.inbox.figures import (
    COUNT_LIMIT,
    Backlog,
    HandlerFigures,
    Overview,
    PeriodFigures,
    Total,
    TypeFigures,
    WorkerFigures,
    percentile,
)
from billhook.inbox.inbox import Inbox
from billhook.inbox.limits import find_paused
from billhook.inbox.schema import delivery, hourly_count, worker
from billhook.inbox.sql import in_states, in_values
from billhook.inbox.states import DeliveryState

WORKER_SILENT_AFTER = timedelta(seconds=60)
"""A worker that was not seen for so long is gone: it writes its row every 20 s."""


def read_overview(inbox: Inbox, now: datetime, hours: int = 24) -> Overview:
    """Return the state of the inbox; counts are of this hour and the `hours` before it, three days at most.

    Older counts are kept by day: see `read_periods`.
    """
    since = _hour(now) - timedelta(hours=hours)
    with inbox.database.read() as connection:
        sums = _sums(connection, since)
        seen = _last_seen(connection)
        return Overview(
            at=now,
            since=since,
            revision=migrate.found_revision(connection),
            backlog=_backlog(connection),
            types=_types(sums, seen),
            handlers=_handlers(sums),
            refused=_refused(sums),
            refused_seconds=_refused_seconds(sums),
            paused=find_paused(connection),
            workers=_workers(connection, now),
            last_at=max((at for at in seen.values() if at is not None), default=None),
        )


def read_periods(
    inbox: Inbox,
    since: datetime,
    until: datetime,
    step: timedelta,
    only: Sequence[Counted] = tuple(Counted),
) -> list[PeriodFigures]:
    """Return what happened in each step of time, an hour or a day (UTC); also those in which nothing did.

    Hours are there for three days, days for 13 months. With `only` nothing else is read: attempts of handlers
    have the most rows.
    """
    columns = (hourly_count.c.hour, hourly_count.c.what, hourly_count.c.cause, hourly_count.c.event_type)
    query = (
        select(*columns, func.sum(hourly_count.c.number))
        .where(hourly_count.c.hour >= since, hourly_count.c.hour < until)
        .where(in_values(hourly_count.c.what, [counted.value for counted in only]))
        .group_by(*columns)
    )
    periods: dict[datetime, PeriodFigures] = {}
    at = since
    while at < until:
        periods[at] = PeriodFigures(at, {}, {}, {})
        at += step
    with inbox.database.read() as connection:
        for hour, what, cause, event_type, number in connection.execute(query):
            period = periods[since + (hour - since) // step * step]
            _add(period.counted, Counted(what), int(number))
            if what == Counted.REFUSED:
                _add(period.refused, cause, int(number))
            elif what == Counted.ACCEPTED:
                _add(period.by_type, event_type, int(number))
    return list(periods.values())


def read_totals(inbox: Inbox) -> list[Total]:
    """Return what happened since the inbox was made: sums that never fall, for metrics."""
    columns = (
        hourly_count.c.source,
        hourly_count.c.event_type,
        hourly_count.c.handler,
        hourly_count.c.what,
        hourly_count.c.cause,
        hourly_count.c.bucket,
    )
    sums = func.sum(hourly_count.c.number), func.sum(hourly_count.c.seconds)
    with inbox.database.read() as connection:
        rows = connection.execute(select(*columns, *sums).group_by(*columns))
        return [
            Total(source, event_type, handler, Counted(what), cause, bucket, int(number), float(seconds))
            for source, event_type, handler, what, cause, bucket, number, seconds in rows
        ]


# --- backlog and workers ------------------------------------------------------------------------------


def _backlog(connection: Connection) -> Backlog:
    conflicts = (delivery.c.conflict_of.is_not(None), _is(DeliveryState.QUARANTINED))
    failed = in_states(delivery.c.state, DeliveryState.DEAD, DeliveryState.QUARANTINED)
    # Named both, in the words of the partial indexes, or those are not used.
    unfinished = in_states(delivery.c.state, DeliveryState.RECEIVED, DeliveryState.PLANNED)
    oldest = select(delivery.c.received_at).where(unfinished).order_by(delivery.c.id).limit(1)
    return Backlog(
        unread=_number(connection, select(delivery.c.id).where(_is(DeliveryState.RECEIVED))),
        in_progress=_number(connection, select(delivery.c.id).where(unfinished, _is(DeliveryState.PLANNED))),
        oldest_at=connection.execute(oldest).scalar_one_or_none(),
        dead=_number(connection, select(delivery.c.id).where(failed, _is(DeliveryState.DEAD))),
        quarantined=_number(connection, select(delivery.c.id).where(failed, _is(DeliveryState.QUARANTINED))),
        conflicts=_number(connection, select(delivery.c.id).where(*conflicts)),
    )


def _is(state: DeliveryState) -> Any:
    return in_states(delivery.c.state, state)


def _number(connection: Connection, query: Select[Any]) -> int:
    counted = select(func.count()).select_from(query.limit(COUNT_LIMIT).subquery())
    number: int = connection.execute(counted).scalar_one()
    return number


def _workers(connection: Connection, now: datetime) -> list[WorkerFigures]:
    columns = (worker.c.owner, worker.c.engine, worker.c.handlers, worker.c.started_at, worker.c.seen_at)
    rows = connection.execute(select(*columns).order_by(worker.c.started_at, worker.c.owner))
    return [WorkerFigures(*row, alive=now - row.seen_at < WORKER_SILENT_AFTER) for row in rows]


# --- counts -------------------------------------------------------------------------------------------


def _sums(connection: Connection, since: datetime) -> list[Any]:
    columns = (
        hourly_count.c.what,
        hourly_count.c.cause,
        hourly_count.c.event_type,
        hourly_count.c.handler,
        hourly_count.c.bucket,
    )
    sums = (
        func.sum(hourly_count.c.number).label("number"),
        func.sum(hourly_count.c.seconds).label("seconds"),
    )
    query = select(*columns, *sums).where(hourly_count.c.hour >= since).group_by(*columns)
    return list(connection.execute(query))


_LAST_SEEN = text(
    # One step in the index for each type, however many deliveries there are of it.
    "WITH RECURSIVE types (event_type, steps) AS ("
    " SELECT min(event_type), 1 FROM delivery UNION ALL"
    " SELECT (SELECT min(event_type) FROM delivery WHERE event_type > types.event_type), steps + 1"
    " FROM types WHERE types.event_type IS NOT NULL AND steps < 500"
    ") SELECT event_type, (SELECT received_at FROM delivery"
    " WHERE delivery.event_type = types.event_type ORDER BY id DESC LIMIT 1) AS last_at"
    " FROM types WHERE event_type IS NOT NULL"
).columns(last_at=delivery.c.received_at.type)


def _last_seen(connection: Connection) -> dict[str, datetime | None]:
    """Return when the last delivery of each type was received, also where retention has deleted it."""
    seen: dict[str, datetime | None] = {row.event_type: row.last_at for row in connection.execute(_LAST_SEEN)}
    counted = (
        select(hourly_count.c.event_type, func.max(hourly_count.c.last_at, type_=hourly_count.c.last_at.type))
        .where(hourly_count.c.what == Counted.ACCEPTED.value)
        .group_by(hourly_count.c.event_type)
    )
    for event_type, last_at in connection.execute(counted):
        seen[event_type] = max(filter(None, (seen.get(event_type), last_at)), default=None)
    return seen


def _types(sums: Iterable[Any], seen: Mapping[str, datetime | None]) -> list[TypeFigures]:
    numbers: dict[str, dict[Counted, int]] = {event_type: {} for event_type in seen}
    for row in sums:
        if not row.handler and row.what != Counted.REFUSED:
            _add(numbers.setdefault(row.event_type, {}), Counted(row.what), int(row.number))
    return [
        TypeFigures(
            event_type,
            accepted=of_type.get(Counted.ACCEPTED, 0),
            duplicates=of_type.get(Counted.DUPLICATE, 0),
            conflicts=of_type.get(Counted.CONFLICT, 0),
            quarantined=of_type.get(Counted.QUARANTINED, 0) + of_type.get(Counted.UNTYPED, 0),
            last_at=seen.get(event_type),
        )
        for event_type, of_type in sorted(numbers.items())
    ]


def _handlers(sums: Iterable[Any]) -> list[HandlerFigures]:
    numbers: dict[str, dict[Counted, int]] = {}
    buckets: dict[str, list[int]] = {}
    seconds: dict[str, float] = {}
    for row in sums:
        if row.handler:
            _add(numbers.setdefault(row.handler, {}), Counted(row.what), int(row.number))
            steps = buckets.setdefault(row.handler, [0] * (len(DURATION_BOUNDS) + 1))
            seconds[row.handler] = seconds.get(row.handler, 0.0) + float(row.seconds)
            if row.bucket >= 0:
                steps[row.bucket] += int(row.number)
    return [
        HandlerFigures(
            name,
            succeeded=of_handler.get(Counted.SUCCEEDED, 0),
            failed=of_handler.get(Counted.FAILED, 0),
            dead=of_handler.get(Counted.DEAD, 0),
            discarded=of_handler.get(Counted.DISCARDED, 0),
            p50_seconds=percentile(buckets[name], 0.5),
            p95_seconds=percentile(buckets[name], 0.95),
            buckets=tuple(buckets[name]),
            seconds=seconds[name],
        )
        for name, of_handler in sorted(numbers.items())
    ]


def _refused(sums: Iterable[Any]) -> dict[str, int]:
    refused: dict[str, int] = {}
    for row in sums:
        if row.what == Counted.REFUSED:
            _add(refused, row.cause, int(row.number))
    return dict(sorted(refused.items()))


def _refused_seconds(sums: Iterable[Any]) -> dict[str, float]:
    timed = [row for row in sums if row.what == Counted.REFUSED and row.bucket >= 0]
    numbers: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for row in timed:
        _add(numbers, row.cause, int(row.number))
        seconds[row.cause] = seconds.get(row.cause, 0.0) + float(row.seconds)
    return {cause: seconds[cause] / number for cause, number in sorted(numbers.items())}


def _add(numbers: Any, name: Any, number: int) -> None:
    numbers[name] = numbers.get(name, 0) + number


def _hour(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
