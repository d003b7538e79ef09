"""Read the state of the inbox: backlog, failures, the deliveries of each type, the results of handlers.

All figures are from the inbox, never from the memory of one process. They take some milliseconds however
many deliveries are stored: backlog and failures are counted by partial indexes up to a limit, all else is
read from the counts by hour and the rows since the closed moment (see billhook.inbox.counts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, func, select, text

from billhook.inbox import migrate
from billhook.inbox.counts import BEFORE, DURATION_BOUNDS, Counted, Counts, open_counts
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
from billhook.inbox.handler_backlog import read_handler_backlogs
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
        recent = open_counts(connection, inbox.known_types)
        sums = _sums(connection, recent, "what", "cause", "event_type", "handler", "bucket", since=since)
        seen = _last_seen(connection, recent)
        refused, refused_seconds = _refusals(sums)
        return Overview(
            at=now,
            since=since,
            revision=migrate.found_revision(connection),
            backlog=_backlog(connection),
            types=_types(sums, seen),
            handlers=_handlers(sums),
            refused=refused,
            refused_seconds=refused_seconds,
            handler_backlogs=read_handler_backlogs(connection, now),
            paused=find_paused(connection),
            workers=_workers(connection, now),
            last_at=max(seen.values(), default=None),
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
    names = ("hour", "what", "cause", "event_type")
    with inbox.database.read() as connection:
        recent = open_counts(connection, inbox.known_types)
        sums = _sums(connection, recent, *names, since=since, until=until, only=only)
    periods = [PeriodFigures(since + step * number) for number in range(-((since - until) // step))]
    for (hour, what, cause, event_type), number, _ in sums:
        period = periods[(hour - since) // step]
        period.counted[Counted(what)] += number
        if what == Counted.REFUSED:
            period.refused[cause] += number
        elif what == Counted.ACCEPTED:
            period.by_type[event_type] += number
    return periods


def read_totals(inbox: Inbox) -> list[Total]:
    """Return what happened since the inbox was made: sums that never fall, for metrics."""
    names = ("source", "event_type", "handler", "what", "cause", "bucket")
    with inbox.database.read() as connection:
        sums = _sums(connection, open_counts(connection, inbox.known_types), *names)
    return [
        Total(source, event_type, handler, Counted(what), cause, bucket, number, seconds)
        for (source, event_type, handler, what, cause, bucket), number, seconds in sums
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

NEVER = datetime.max.replace(tzinfo=UTC)
Sums = list[tuple[tuple[Any, ...], int, float]]
"""Labels, how often it happened, and the seconds that it took."""


def _sums(
    connection: Connection,
    recent: Counts,
    *names: str,
    since: datetime = BEFORE,
    until: datetime = NEVER,
    only: Sequence[Counted] = tuple(Counted),
) -> Sums:
    """Return the sums by these labels, of the roll-up and of what is `recent`."""
    labels, count = [hourly_count.c[name] for name in names], hourly_count.c
    query = (
        select(*labels, func.sum(count.number), func.sum(count.seconds))
        .where(count.hour >= since, count.hour < until, in_values(count.what, [*only]))
        .group_by(*labels)
    )
    sums = {tuple(key): (int(number), float(seconds)) for *key, number, seconds in connection.execute(query)}
    for key, added in recent.items():
        if since <= key.hour < until and key.what in only:
            label = tuple(getattr(key, name) for name in names)
            number, seconds = sums.get(label, (0, 0.0))
            sums[label] = number + added.number, seconds + added.seconds
    return [(label, *both) for label, both in sums.items()]


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


def _last_seen(connection: Connection, recent: Counts) -> dict[str, datetime]:
    """Return when the last delivery of each type was received, also where retention has deleted it."""
    counted = (
        select(hourly_count.c.event_type, func.max(hourly_count.c.last_at, type_=hourly_count.c.last_at.type))
        .where(hourly_count.c.what == Counted.ACCEPTED.value)
        .group_by(hourly_count.c.event_type)
    )
    seen: dict[str, datetime] = {}
    accepted = [(key.event_type, one.last_at) for key, one in recent.items() if key.what == Counted.ACCEPTED]
    for event_type, last_at in (*connection.execute(_LAST_SEEN), *connection.execute(counted), *accepted):
        seen[event_type] = max(last_at, seen.get(event_type, last_at))
    return seen


def _types(sums: Sums, seen: Mapping[str, datetime]) -> list[TypeFigures]:
    numbers: Counter[tuple[str, str]] = Counter()
    for (what, _, event_type, handler, _), number, _ in sums:
        if not handler and what != Counted.REFUSED:
            numbers[event_type, what] += number
    return [
        TypeFigures(
            name,
            accepted=numbers[name, Counted.ACCEPTED],
            duplicates=numbers[name, Counted.DUPLICATE],
            conflicts=numbers[name, Counted.CONFLICT],
            quarantined=numbers[name, Counted.QUARANTINED] + numbers[name, Counted.UNTYPED],
            last_at=seen.get(name),
        )
        for name in sorted({name for name, _ in numbers} | seen.keys())
    ]


def _handlers(sums: Sums) -> list[HandlerFigures]:
    numbers: Counter[tuple[str, str]] = Counter()
    buckets: dict[str, list[int]] = {}
    times: dict[str, float] = {}
    for (what, _, _, handler, bucket), number, seconds in sums:
        if handler:
            numbers[handler, what] += number
            times[handler] = times.get(handler, 0.0) + seconds
            steps = buckets.setdefault(handler, [0] * (len(DURATION_BOUNDS) + 1))
            if bucket >= 0:
                steps[bucket] += number
    return [
        HandlerFigures(
            name,
            succeeded=numbers[name, Counted.SUCCEEDED],
            failed=numbers[name, Counted.FAILED],
            dead=numbers[name, Counted.DEAD],
            discarded=numbers[name, Counted.DISCARDED],
            p50_seconds=percentile(steps, 0.5),
            p95_seconds=percentile(steps, 0.95),
            buckets=tuple(steps),
            seconds=times[name],
        )
        for name, steps in sorted(buckets.items())
    ]


def _refusals(sums: Sums) -> tuple[dict[str, int], dict[str, float]]:
    """Return by cause how many deliveries were refused, and the average seconds of those with any."""
    refused: Counter[str] = Counter()
    timed: Counter[str] = Counter()
    times: dict[str, float] = {}
    for (what, cause, *_, bucket), number, seconds in sums:
        if what == Counted.REFUSED:
            refused[cause] += number
            if bucket >= 0:
                timed[cause] += number
                times[cause] = times.get(cause, 0.0) + seconds
    averages = {cause: times[cause] / number for cause, number in sorted(timed.items())}
    return dict(sorted(refused.items())), averages


def _hour(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
