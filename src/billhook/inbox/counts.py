"""Count what happened to deliveries and runs, for `billhook status`, metrics and pages.

Figures are read, not counted: nothing is written for them on the way of a delivery. They are the sum of two
parts, with the closed moment between them:

    roll-up     what happened up to that moment, in the table billhook_count: it remains when retention has
                deleted the rows
    open part   the rows since then, of the last half minute in an inbox with a worker

Maintenance moves the closed moment on (`note`, then `close`). An action that overwrites or deletes rows of
the open part adds what it removes to the roll-up (`keeping`), so that no figure ever falls. What has no row,
a refusal or a duplicate, is counted in memory and written every few seconds (see
billhook.inbox.buffered_counts).

Rows of the roll-up are few, however much happens: one for each hour, source, event type, handler, what, cause
and step of duration. Types without a model share one name. After three days hours become days, and after 13
months one sum.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple, Required, TypedDict, Unpack

from sqlalchemy import (
    ColumnElement,
    Connection,
    TextualSelect,
    and_,
    bindparam,
    case,
    delete,
    func,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from billhook.inbox.locks import try_to_lock_counts
from billhook.inbox.schema import closed, delivery, failure, hourly_count, run
from billhook.inbox.sql import UtcDateTime, in_states
from billhook.inbox.states import DeliveryState

OTHER_TYPES = "*"
"""The event type that deliveries of all types without a model are counted under: senders may invent many."""
DURATION_BOUNDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0),
)
"""The upper bounds of the steps of duration in seconds; the last step, beyond them, has none."""
NO_DURATION = -1
_PARTS_OF_SECOND = 2**20
"""Durations are summed in these parts, of a microsecond: such a sum is exact up to 272 years, in any order.
Others would fall by a rounding error when rows are merged, and Prometheus takes a fall for a restart."""
HOURS_KEPT_FOR = timedelta(days=3)
KEPT_FOR = timedelta(days=396)
"""How long counts are kept by day: 13 months."""
BEFORE = datetime(1970, 1, 1, tzinfo=UTC)
"""The hour of what is older: one sum each, so that the sum over all time never falls."""
MARGIN = {"sqlite": timedelta(seconds=2), "postgresql": timedelta(seconds=6)}
"""How long ago the closed moment is at least. A result may be stored with a time that is RECENT
(billhook.inbox.runs); the rest is for machines whose clocks differ from that of PostgreSQL."""
_COMPACT_LIMIT = 2_000
_CLOSE_LIMIT = 2_000


class Counted(StrEnum):
    """What is counted."""

    # Deliveries. Those beside ACCEPTED are not part of it.
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    UNTYPED = "untyped"
    REFUSED = "refused"
    # Of the accepted, those that could not be read.
    QUARANTINED = "quarantined"
    # Attempts of runs. FAILED are those that are tried again.
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"
    DISCARDED = "discarded"


class CountKey(NamedTuple):
    """What a row counts; in the order of the table's primary key."""

    hour: datetime
    source: str
    event_type: str
    handler: str
    what: str
    cause: str
    bucket: int


class Sum(NamedTuple):
    """How often it happened, how long that took, and when it happened last."""

    number: int
    seconds: float
    last_at: datetime


class Labels(TypedDict, total=False):
    """What tells one thing from another."""

    source: Required[str]
    event_type: str
    cause: str
    duration_seconds: float | None


class Counts(dict[CountKey, Sum]):
    """Counts in memory."""

    def add(self, what: Counted, at: datetime, **labels: Unpack[Labels]) -> None:
        """Count one thing that happened `at` that moment, and how long it took."""
        hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        seconds = labels.get("duration_seconds")
        bucket = NO_DURATION if seconds is None else bisect_left(DURATION_BOUNDS, seconds)
        event_type, cause = labels.get("event_type", ""), labels.get("cause", "")
        key = CountKey(hour, labels["source"], event_type, "", what.value, cause, bucket)
        self.put(key, 1, round((seconds or 0.0) * _PARTS_OF_SECOND) / _PARTS_OF_SECOND, at)

    def put(self, key: CountKey, number: int, seconds: float, last_at: datetime) -> None:
        """Add to one sum."""
        known = self.get(key, Sum(0, 0.0, last_at))
        self[key] = Sum(known.number + number, known.seconds + seconds, max(known.last_at, last_at))

    def merge(self, other: Counts) -> None:
        """Add other counts to these."""
        for key, added in other.items():
            self.put(key, *added)

    def write(self, connection: Connection) -> None:
        """Add them to the table; the last step of a transaction: it locks rows until the commit."""
        # In one order in all transactions: two that locked rows in different orders could deadlock.
        rows = [key._asdict() | added._asdict() for key, added in sorted(self.items())]
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        new = dialect.insert(hourly_count)
        row, more = hourly_count.c, new.excluded
        sums = {
            "number": row.number + more.number,
            "seconds": row.seconds + more.seconds,
            "last_at": case((more.last_at > row.last_at, more.last_at), else_=row.last_at),
        }
        if rows:
            connection.execute(new.on_conflict_do_update(index_elements=_KEY, set_=sums), rows)


_KEY = tuple(hourly_count.primary_key.columns)


# --- rows ---------------------------------------------------------------------------------------------


class ClosedMark(NamedTuple):
    """Up to where rows are counted. Ids, where rows get them in the order of time, spare an index by time."""

    finished_at: datetime
    """Of runs."""
    delivery_id: int
    quarantined_id: int
    """Of quarantined deliveries: no delivery up to this id is unread, so that no more of them can be."""
    failure_id: int


_END = ClosedMark(datetime(9999, 12, 31, tzinfo=UTC), *[2**62] * 3)


def open_counts(connection: Connection, known_types: Collection[str] | None) -> Counts:
    """Return the counts of the open part, to be added to those of the roll-up."""
    return _count(connection, _mark(connection), _END, known_types)


@contextmanager
def keeping(
    connection: Connection, delivery_ids: Collection[int], known_types: Collection[str] | None
) -> Iterator[None]:
    """Add what the block removes of the open part to the roll-up: rows of these deliveries.

    The transaction holds `lock_counts`, and locks that keep others from changing these rows.
    """
    mark = _mark(connection)
    before = _count(connection, mark, _END, known_types, delivery_ids)
    yield
    after = _count(connection, mark, _END, known_types, delivery_ids) if before else before
    removed = Counts()
    for key, (number, seconds, last_at) in before.items():
        left = after.get(key, Sum(0, 0.0, last_at))
        if number > left.number:
            removed.put(key, number - left.number, seconds - left.seconds, last_at)
    removed.write(connection)
    # SQLite gives the ids of the newest rows again, once those are deleted.
    for name, table in (("delivery_id", delivery), ("quarantined_id", delivery), ("failure_id", failure)):
        newest = select(func.coalesce(func.max(table.c.id), 0)).scalar_subquery()
        connection.execute(update(closed).where(closed.c[name] > newest).values({name: newest}))


def open_time(connection: Connection, now: datetime) -> datetime:
    """Return `now`, or else the first time that is not closed: a run that finishes then is counted."""
    return max(now, _mark(connection).finished_at + timedelta(microseconds=1))


def _mark(connection: Connection) -> ClosedMark:
    return ClosedMark._make(
        connection.execute(select(*[closed.c[name] for name in ClosedMark._fields])).one()
    )


def _count(
    connection: Connection,
    after: ClosedMark,
    until: ClosedMark,
    known_types: Collection[str] | None,
    delivery_ids: Collection[int] | None = None,
) -> Counts:
    """Count the rows between two marks, of some deliveries or of all."""
    values: dict[str, Any] = after._asdict() | {
        f"to_{name}": value for name, value in until._asdict().items()
    }
    if delivery_ids is not None:
        ids = [*delivery_ids]
        values["delivery_ids"] = ids if connection.dialect.name == "postgresql" else json.dumps(ids)
    counts = Counts()
    query = _rows(connection.dialect.name, of_these=delivery_ids is not None)
    for *labels, number, seconds, last_at in connection.execute(query, values):
        key = CountKey._make(labels)
        known = known_types is None or not key.event_type or key.event_type in known_types
        counts.put(key if known else key._replace(event_type=OTHER_TYPES), number, seconds, last_at)
    return counts


@cache
def _rows(dialect: str, *, of_these: bool) -> TextualSelect:
    """Return the query of the rows between two marks, by hour, labels and step of duration."""
    steps = " ".join(f"WHEN seconds <= {bound} THEN {step}" for step, bound in enumerate(DURATION_BOUNDS))
    hour, these = _BY_DIALECT[dialect]
    query = _ROWS.format(
        hour=hour,
        bucket=f"CASE WHEN seconds IS NULL THEN {NO_DURATION} {steps} ELSE {len(DURATION_BOUNDS)} END",
        parts=_PARTS_OF_SECOND,
        # The type as it came, which an operator may have changed. A conflict was counted when it was stored.
        sent=(
            "received_at AS at, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,"
            " CAST(NULL AS double precision) AS seconds FROM delivery"
            " WHERE conflict_of IS NULL AND coalesce(sent_as, event_type) != ''"
        ),
        ids=f"AND id {these}" if of_these else "",
        delivery_ids=f"AND delivery_id {these}" if of_these else "",
    )
    ends = [bindparam(name, type_=UtcDateTime) for name in ("finished_at", "to_finished_at")]
    names = (*CountKey._fields, *Sum._fields)
    return text(query).bindparams(*ends).columns(*(hourly_count.c[name] for name in names))


_BY_DIALECT = {
    "postgresql": ("date_trunc('hour', at, 'UTC')", "= ANY (:delivery_ids)"),
    "sqlite": (
        "substr(at, 1, 13) || ':00:00.000000'",
        "IN (SELECT value FROM json_each(:delivery_ids))",
    ),
}
_ROWS = """
    SELECT {hour}, source, event_type, handler, what, '', {bucket}, count(*),
        sum(round(coalesce(seconds, 0) * {parts}) / {parts}), max(at)
    FROM (
        SELECT 'accepted' AS what, {sent} AND id > :delivery_id AND id <= :to_delivery_id {ids}
        UNION ALL
        SELECT 'quarantined', {sent} AND id > :quarantined_id AND id <= :to_quarantined_id {ids}
            AND state IN ('dead', 'quarantined') AND state IN ('quarantined')
        UNION ALL
        SELECT 'failed', failed_at, '', '', handler, failure.duration_seconds
        FROM failure JOIN run ON run.id = run_id
        WHERE retried = 1 AND failure.id > :failure_id AND failure.id <= :to_failure_id {delivery_ids}
        UNION ALL
        SELECT state, finished_at, '', '', handler, duration_seconds FROM run
        WHERE finished_at > :finished_at AND finished_at <= :to_finished_at {delivery_ids}
    ) AS happened
    GROUP BY 1, 2, 3, 4, 5, 7
"""


# --- closing ------------------------------------------------------------------------------------------
# On PostgreSQL a transaction may yet commit rows with lower ids and earlier times than others have now. So
# the end of the next part is noted with the transactions that hold a lock which one that writes such rows
# takes first; it is closed when all of these are over. SQLite has one writer, so there are none.


class Note(NamedTuple):
    """What may be closed once these transactions are over."""

    at: datetime
    delivery_id: int
    failure_id: int
    transactions: frozenset[str]


_WRITERS = text(
    "SELECT virtualtransaction FROM pg_locks WHERE mode IN ('RowShareLock', 'RowExclusiveLock')"
    " AND relation IN ('delivery'::regclass, 'run'::regclass, 'failure'::regclass)"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def note(connection: Connection, now: datetime) -> Note | None:
    """Note what may be closed later; None if no row is open. In a transaction that only reads."""
    mark = _mark(connection)
    delivery_id, failure_id = _newest(connection)
    # Not by max(): the partial index is not used for that.
    later = select(run.c.finished_at).where(run.c.finished_at > mark.finished_at)
    last = later.order_by(run.c.finished_at.desc()).limit(1)
    finished_at = connection.execute(last).scalar_one_or_none() or mark.finished_at
    if not _is_before(mark, finished_at, delivery_id, failure_id):
        return None
    writers: frozenset[str] = frozenset()
    if connection.dialect.name == "postgresql":
        now = min(now, connection.execute(select(func.now())).scalar_one())
        writers = frozenset(connection.execute(_WRITERS).scalars())  # after what is noted was read
    return Note(now, delivery_id, failure_id, writers)


def close(connection: Connection, noted: Note, known_types: Collection[str] | None) -> bool:
    """Add what was noted to the roll-up, some thousand rows of it; return whether there is more."""
    if not try_to_lock_counts(connection):
        return False
    mark = _mark(connection)
    end = max(mark.finished_at, noted.at - MARGIN[connection.dialect.name])
    later = select(run.c.finished_at).where(run.c.finished_at > mark.finished_at, run.c.finished_at < end)
    step = later.order_by(run.c.finished_at).offset(_CLOSE_LIMIT).limit(1)
    # Rows may have been deleted since it was noted, and SQLite gives their ids again.
    ends = [*map(min, (noted.delivery_id, noted.failure_id), _newest(connection))]
    delivery_id, failure_id = (
        max(before, min(number, before + _CLOSE_LIMIT))
        for before, number in zip((mark.delivery_id, mark.failure_id), ends, strict=True)
    )
    unread = select(func.min(delivery.c.id)).where(in_states(delivery.c.state, DeliveryState.RECEIVED))
    first_unread = connection.execute(unread).scalar_one()
    read_up_to = delivery_id if first_unread is None else min(delivery_id, first_unread - 1)
    until = ClosedMark(
        connection.execute(step).scalar_one_or_none() or end,
        delivery_id,
        max(mark.quarantined_id, read_up_to),
        failure_id,
    )
    if until != mark:
        _count(connection, mark, until, known_types).write(connection)
        connection.execute(update(closed).values(until._asdict()))
    return _is_before(until, end, *ends)


def _newest(connection: Connection) -> tuple[int, int]:
    newest = [select(func.max(table.c.id)).scalar_subquery() for table in (delivery, failure)]
    delivery_id, failure_id = connection.execute(select(*newest)).one()
    return delivery_id or 0, failure_id or 0


def _is_before(mark: ClosedMark, finished_at: datetime, delivery_id: int, failure_id: int) -> bool:
    """Return whether there may be rows behind the mark, up to these."""
    return mark.finished_at < finished_at or mark.delivery_id < delivery_id or mark.failure_id < failure_id


# --- compaction ---------------------------------------------------------------------------------------


def compact(connection: Connection, now: datetime) -> int:
    """Merge the hours of past days, and what is older than 13 months.

    Takes up to some thousand rows; returns how many, 0 when there is nothing left to do.
    """
    if not try_to_lock_counts(connection):
        return 0
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    old = and_(hourly_count.c.hour < midnight - KEPT_FOR, hourly_count.c.hour > BEFORE)
    if merged := _merge(connection, old, BEFORE):
        return merged
    hours = select(hourly_count.c.hour).where(hourly_count.c.hour < midnight - HOURS_KEPT_FOR).distinct()
    unmerged = [hour for hour in connection.execute(hours).scalars() if hour.hour]
    day = min(unmerged, default=BEFORE).replace(hour=0)
    of_day = and_(hourly_count.c.hour > day, hourly_count.c.hour < day + timedelta(days=1))
    return _merge(connection, of_day, day) if unmerged else 0


def _merge(connection: Connection, rows: ColumnElement[bool], period: datetime) -> int:
    """Merge some of these rows into the rows of their period; return how many there were."""
    # Skipped, not waited for: what another transaction adds to.
    chosen = select(*_KEY).where(rows).limit(_COMPACT_LIMIT).with_for_update(skip_locked=True)
    taken = delete(hourly_count).where(tuple_(*_KEY).in_(chosen)).returning(*hourly_count.c)
    merged = Counts()
    number = 0
    for number, row in enumerate(connection.execute(taken).all(), 1):  # noqa: B007 - how many there were
        key, sums = row[: len(_KEY)], row[len(_KEY) :]
        merged.put(CountKey(*key)._replace(hour=period), *sums)
    merged.write(connection)
    return number
