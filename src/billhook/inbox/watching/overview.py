"""Read the state of the inbox: backlog, failures, the deliveries of each type, the results of handlers.

`billhook status`, its JSON, metrics, the pages and `billhook doctor` are views of it. All figures are from
the inbox, never from the memory of one process. They take some milliseconds however many deliveries are
stored: backlog and failures are counted by partial indexes up to a limit, all else is read from the counts
by hour and the rows above the watermark (see billhook.inbox.counting.counts).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam

from billhook.inbox.counting.counts import (
    ATTEMPTS,
    DURATION_BOUNDS,
    NO_DURATION,
    Counted,
    Counts,
    hour_of,
    read_counts,
)
from billhook.inbox.counting.crashes import ThreadCrashes, read_crashes
from billhook.inbox.inbox import Inbox
from billhook.inbox.running.limits import find_paused
from billhook.inbox.running.workers import WorkerFigures, read_workers
from billhook.inbox.tables.records import PausedHandler
from billhook.inbox.tables.revision import found_revision
from billhook.inbox.tables.schema import CONFLICTING, FAILED, UNFINISHED, UNREAD
from billhook.inbox.tables.sql import TextOfTables, UtcDateTime, distinct_values, words
from billhook.inbox.watching.handler_backlogs import HandlerBacklog, read_handler_backlogs

COUNT_LIMIT = 100_000
"""How far deliveries are counted one by one: a number that is as large means "at least"."""
FEW_CALLS = 1_000
"""The most calls that are read one by one for their percentiles: steps of duration are too coarse for few."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The unfinished and the failed deliveries, now. Numbers are exact below COUNT_LIMIT."""

    unread: int
    in_progress: int
    oldest_at: datetime | None
    """When the oldest unfinished delivery was received."""
    oldest_unread_at: datetime | None
    """When the oldest delivery was received that no worker has read."""
    dead: int
    quarantined: int
    conflicts: int
    """How many of the quarantined ones contradict another delivery of their key."""

    @property
    def waiting(self) -> int:
        """All that are not finished."""
        return self.unread + self.in_progress


@dataclass(frozen=True, slots=True)
class TypeFigures:
    """Deliveries of one event type in the time asked for; "*" is all types without a model."""

    event_type: str
    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    quarantined: int = 0
    last_at: datetime | None = None
    """When the last one was received, however long ago."""


@dataclass(frozen=True, slots=True)
class HandlerFigures:
    """One handler in the time asked for. `failed` are attempts that are tried again.

    `p50_seconds` and `p95_seconds` are those of its calls where all handlers had few, and else estimated from
    steps of duration; None without a call.
    """

    name: str
    succeeded: int
    failed: int
    dead: int
    discarded: int
    p50_seconds: float | None
    p95_seconds: float | None


@dataclass(frozen=True, slots=True)
class InboxState:
    """What is in an inbox now, and who serves it."""

    revision: str | None
    backlog: Backlog
    handler_backlogs: Sequence[HandlerBacklog]
    paused: Sequence[PausedHandler]
    workers: Sequence[WorkerFigures]
    machine_ahead_seconds: float
    """How far the clock of the machine that asks is ahead of the database server's; 0.0 without a server."""

    @property
    def waiting_since(self) -> datetime | None:
        """Since when the delivery that waits longest could have been handled; None if none could.

        What waits for its time of retry, or for a paused handler, could not.
        """
        due = (one.oldest_due_at for one in self.handler_backlogs if not one.paused)
        return min(filter(None, (self.backlog.oldest_unread_at, *due)), default=None)


@dataclass(frozen=True, slots=True)
class Overview(InboxState):
    """The state of an inbox at `at`; what is counted over time is counted from `since`."""

    at: datetime
    since: datetime
    types: Sequence[TypeFigures]
    handlers: Sequence[HandlerFigures]
    refused: Mapping[str, int]
    """Deliveries that were not accepted, by cause."""
    refused_seconds: Mapping[str, float]
    """By how much the signed times that were outside the tolerance were so, on average, by cause."""
    last_at: datetime | None
    """When the last delivery was received."""
    crashes: Sequence[ThreadCrashes]


@dataclass(frozen=True, slots=True)
class PeriodFigures:
    """An hour or a day that begins `at`: what happened in it, `refused` by cause."""

    at: datetime
    counted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    by_type: Counter[str] = field(default_factory=Counter)
    """The accepted deliveries of each type."""
    durations: Counter[int] = field(default_factory=Counter)
    """The attempts by step of duration; see `percentile`."""
    calls: list[float] = field(default_factory=list)
    """How many seconds each attempt took, in order; of some or none where the inbox has many."""

    @property
    def is_estimated(self) -> bool:
        """Whether what `took` returns is estimated: not every attempt is among the `calls`."""
        return self.durations.total() - self.durations[NO_DURATION] > len(self.calls)

    def took(self, part: float) -> float | None:
        """Return the seconds that this part of the attempts did not exceed; None without an attempt."""
        if self.is_estimated or not self.calls:
            return percentile(self.durations, part)
        return _part_of(self.calls, part)


class RefusedSince(NamedTuple):
    """How many deliveries of a source were refused since its last authentic one, counted from an hour."""

    source: str
    number: int
    hour: datetime
    last_at: datetime
    authentic_at: datetime | None


def read_overview(inbox: Inbox, now: datetime) -> Overview:
    """Return the state of the inbox; counts are of this hour and the 24 before it."""
    since = hour_of(now) - timedelta(hours=24)
    labels = ("event_type", "handler", "what", "cause", "bucket")
    with inbox.database.read() as connection:
        counts = read_counts(connection, inbox.known_types, labels, since)
        # When the last delivery of each type was received, also where retention has deleted it.
        seen: dict[str, datetime] = {}
        for event_type, last_at in connection.execute(_LAST_SEEN):
            seen[event_type] = max(last_at, seen.get(event_type, last_at))
        refused, seconds = _refusals(counts)
        return Overview(
            at=now,
            since=since,
            types=_types(counts, seen),
            handlers=_handlers(counts, _calls(connection, counts, since)),
            refused=refused,
            refused_seconds=seconds,
            last_at=max(seen.values(), default=None),
            crashes=read_crashes(connection, since),
            **_state(connection, inbox, now),
        )


def read_state(inbox: Inbox, now: datetime) -> InboxState:
    """Return the part of an overview that is counted over no time."""
    with inbox.database.read() as connection:
        return InboxState(**_state(connection, inbox, now))


def _state(connection: Connection, inbox: Inbox, now: datetime) -> dict[str, Any]:
    return {
        "revision": found_revision(connection),
        "backlog": Backlog(**connection.execute(_BACKLOG, {"at_most": COUNT_LIMIT}).mappings().one()),
        "handler_backlogs": read_handler_backlogs(connection, now, inbox.limits()),
        "paused": find_paused(connection),
        "workers": read_workers(connection, now),
        "machine_ahead_seconds": round(inbox.database.machine_ahead_seconds, 1),
    }


def read_periods(
    inbox: Inbox,
    since: datetime,
    until: datetime,
    step: timedelta,
    only: Collection[Counted] = tuple(Counted),
    handlers: Collection[str] | None = None,
) -> list[PeriodFigures]:
    """Return what happened in each step of time, a minute, an hour or a day (UTC); also where nothing did.

    Hours are there for three days, days for 13 months; minutes only of what has rows, so without refusals
    and duplicates. With `only` nothing else is read: attempts of handlers have the most rows. With `handlers`
    only their attempts count, with their durations.
    """
    labels = (
        ("hour", "event_type", "what", "cause") if handlers is None else ("hour", "handler", "what", "bucket")
    )
    by_minute = step < timedelta(hours=1)
    calls: dict[str, list[_Call]] = {}
    with inbox.database.read() as connection:
        counts = read_counts(connection, inbox.known_types, labels, since, only, by_minute=by_minute)
        if handlers is not None:
            calls = _calls(connection, counts, since)
    periods = [PeriodFigures(since + step * number) for number in range(-((since - until) // step))]
    for key, sums in counts.items():
        if key.hour < until and (handlers is None or key.handler in handlers):
            period = periods[(key.hour - since) // step]
            period.counted[key.what] += sums.number
            period.durations[key.bucket] += sums.number
            if key.what == Counted.REFUSED:
                period.refused[key.cause] += sums.number
            elif key.what == Counted.ACCEPTED:
                period.by_type[key.event_type] += sums.number
    for name in calls.keys() & set(handlers or ()):
        for ended_at, seconds in calls[name]:
            if ended_at < until:
                insort(periods[(ended_at - since) // step].calls, seconds)
    return periods


def read_refused_since(inbox: Inbox, since: datetime, causes: Collection[str]) -> list[RefusedSince]:
    """Return the sources of which deliveries were refused for these causes after the last authentic one.

    Refusals are stored by hour: the number has those of the hour of the last authentic delivery too.
    """
    labels = ("hour", "source", "what", "cause")
    counts = inbox.read_counts(*labels, since=hour_of(since), only=_OF_DELIVERIES)
    authentic_at: dict[str, datetime] = {}
    for key, sums in counts.items():
        if key.what != Counted.REFUSED:
            authentic_at[key.source] = max(sums.last_at, authentic_at.get(key.source, sums.last_at))
    found: dict[str, RefusedSince] = {}
    for key, sums in sorted(counts.items()):
        last_authentic_at = authentic_at.get(key.source)
        of_before = last_authentic_at is not None and key.hour < hour_of(last_authentic_at)
        if key.what == Counted.REFUSED and key.cause in causes and not of_before:
            new = RefusedSince(key.source, 0, key.hour, sums.last_at, last_authentic_at)
            known = found.get(key.source, new)
            last_at = max(known.last_at, sums.last_at)
            found[key.source] = known._replace(number=known.number + sums.number, last_at=last_at)
    return [one for one in found.values() if one.authentic_at is None or one.last_at > one.authentic_at]


_OF_DELIVERIES = (
    *(Counted.ACCEPTED, Counted.UNTYPED, Counted.DUPLICATE, Counted.CONFLICT),
    Counted.REFUSED,
)


def read_totals(inbox: Inbox) -> Counts:
    """Return what happened since the inbox was made: sums that never fall, for metrics."""
    return inbox.read_counts("source", "event_type", "handler", "what", "cause", "bucket")


_DELIVERIES = {
    "unread": words(UNREAD),
    "in_progress": f"{words(UNFINISHED)} AND state IN ('planned')",
    "dead": f"{words(FAILED)} AND state IN ('dead')",
    "quarantined": f"{words(FAILED)} AND state IN ('quarantined')",
    "conflicts": f"{words(CONFLICTING)} AND state IN ('quarantined')",
}
_NUMBER = "(SELECT count(*) FROM (SELECT 1 FROM $delivery WHERE {} LIMIT :at_most) AS counted) AS {}, "
_OLDEST = f"(SELECT received_at FROM $delivery WHERE {words(UNFINISHED)} ORDER BY id LIMIT 1)"  # noqa: S608
_OLDEST_UNREAD = f"(SELECT received_at FROM $delivery WHERE {words(UNREAD)} ORDER BY id LIMIT 1)"  # noqa: S608
_NUMBERS = "".join(_NUMBER.format(which, name) for name, which in _DELIVERIES.items())
_BACKLOG = TextOfTables(
    f"SELECT {_NUMBERS} {_OLDEST} AS oldest_at, {_OLDEST_UNREAD} AS oldest_unread_at"
).columns(oldest_at=UtcDateTime, oldest_unread_at=UtcDateTime)


_LAST_SEEN = TextOfTables(f"""
    WITH RECURSIVE {distinct_values("types", "event_type", "delivery", "TRUE")}, of_rows AS (
        SELECT event_type, (
            SELECT received_at FROM $delivery WHERE delivery.event_type = types.event_type
            ORDER BY id DESC LIMIT 1
        ) AS last_at FROM types WHERE event_type IS NOT NULL LIMIT 500
    ) SELECT event_type, last_at FROM of_rows
    UNION ALL
    SELECT event_type, max(last_at) FROM $billhook_count WHERE what = 'accepted' GROUP BY event_type
""").columns(last_at=UtcDateTime)  # noqa: S608 - constants


def _types(counts: Counts, seen: Mapping[str, datetime]) -> list[TypeFigures]:
    numbers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for key, sums in counts.items():
        if not key.handler and key.what != Counted.REFUSED:
            numbers[key.event_type][key.what] += sums.number
    return [
        TypeFigures(
            name,
            accepted=numbers[name][Counted.ACCEPTED],
            duplicates=numbers[name][Counted.DUPLICATE],
            conflicts=numbers[name][Counted.CONFLICT],
            quarantined=numbers[name][Counted.QUARANTINED] + numbers[name][Counted.UNTYPED],
            last_at=seen.get(name),
        )
        for name in sorted(numbers.keys() | seen.keys())
    ]


# The same calls that are counted: see billhook.inbox.counting.counts.
_CALLS = (
    TextOfTables("""
    SELECT handler, finished_at AS ended_at, duration_seconds FROM $run
    WHERE finished_at >= :since AND duration_seconds IS NOT NULL
    UNION ALL
    SELECT run.handler, failed_at, failure.duration_seconds FROM $failure JOIN $run ON run.id = run_id
    WHERE failed_at >= :since AND retried = 1 AND failure.duration_seconds IS NOT NULL
    LIMIT :at_most
""")
    .bindparams(bindparam("since", type_=UtcDateTime))
    .columns(ended_at=UtcDateTime)
)


class _Call(NamedTuple):
    """A call of a handler: when it ended, and after how many seconds."""

    ended_at: datetime
    seconds: float


def _calls(connection: Connection, counts: Counts, since: datetime) -> dict[str, list[_Call]]:
    """Return the calls of each handler since a time; only where all handlers have few."""
    calls: Counter[str] = Counter()
    for key, sums in counts.items():
        if key.handler and key.bucket != NO_DURATION:
            calls[key.handler] += sums.number
    if not 0 < calls.total() <= FEW_CALLS:
        return {}
    found: defaultdict[str, list[_Call]] = defaultdict(list)
    for handler, *call in connection.execute(_CALLS, {"since": since, "at_most": FEW_CALLS + 1}):
        found[handler].append(_Call(*call))
    # Of a handler whose calls are not all there any more, or stand under a former name, the steps are better.
    return {name: each for name, each in found.items() if len(each) == calls[name]}


def _part_of(durations: Sequence[float], part: float) -> float:
    """Return the duration that at least this part of the calls did not exceed: the nearest rank."""
    return durations[ceil(part * len(durations)) - 1]


def _handlers(counts: Counts, calls: Mapping[str, Sequence[_Call]]) -> list[HandlerFigures]:
    numbers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    steps: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for key, sums in counts.items():
        if key.handler:
            numbers[key.handler][key.what] += sums.number
            steps[key.handler][key.bucket] += sums.number
    durations = {name: sorted(one.seconds for one in each) for name, each in calls.items()}
    return [
        HandlerFigures(
            name,
            *(of_it[what] for what in ATTEMPTS),
            *(
                _part_of(durations[name], part) if name in durations else percentile(steps[name], part)
                for part in (0.5, 0.95)
            ),
        )
        for name, of_it in sorted(numbers.items())
    ]


def _refusals(counts: Counts) -> tuple[dict[str, int], dict[str, float]]:
    """Return by cause how many deliveries were refused, and the average seconds of those with any."""
    refused: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for key, sums in sorted(counts.items()):
        if key.what == Counted.REFUSED:
            refused[key.cause] += sums.number
            seconds[key.cause] += sums.seconds
    # Where the signed time is the cause, each has seconds.
    return dict(refused), {cause: total / refused[cause] for cause, total in seconds.items() if total}


def percentile(buckets: Mapping[int, int], part: float) -> float | None:
    """Estimate the duration in seconds that this part of the calls stayed below; None without a call.

    `buckets` are the calls by step of duration. Within a step they are taken to be spread evenly; those
    beyond the last bound count as that bound.
    """
    up_to = list(accumulate(buckets.get(step, 0) for step in range(len(DURATION_BOUNDS) + 1)))
    wanted = up_to[-1] * part
    if not wanted:
        return None
    step = bisect_left(up_to, wanted)
    lower, upper = (0.0, *DURATION_BOUNDS)[step], (*DURATION_BOUNDS, DURATION_BOUNDS[-1])[step]
    return lower + (upper - lower) * ((wanted - up_to[step]) / buckets[step] + 1)
