"""Count what happened to deliveries and runs, for `billhook status`, metrics and pages.

Figures are read, not counted: nothing is written for them on the way of a delivery. They are the sum of two
parts, with a watermark between them:

    hourly counts   what happened up to the watermark, in the table billhook_count: they remain when retention
                    has deleted the rows
    newer rows      those above the watermark, of the last half minute in an inbox with a worker

Maintenance moves the watermark (`note`, then `advance`). An action that overwrites or deletes rows above it
adds what it removes to the hourly counts (`keeping`), so that no figure ever falls. What has
no row, a refusal or a duplicate, is counted in memory and written every few seconds (see
billhook.inbox.storing.buffered_counts).

A delivery whose type is in its body is counted as accepted when that is read: no figure can move from one
type to another. If it cannot be read, the delivery is counted as untyped.

The hourly counts have few rows, however much happens: one for each hour, source, event type, handler, what,
cause and step of duration. Types without a model share one name. After three days hours become days, those
of accepted deliveries after 31, and after 13 months one sum.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from operator import lt
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Subquery,
    Text,
    bindparam,
    case,
    column,
    func,
    or_,
    select,
    union_all,
    update,
)

from billhook.basics.type_names import is_reading
from billhook.inbox.tables.dialect import dialect_of
from billhook.inbox.tables.handler_names import present_names
from billhook.inbox.tables.locks import try_to_lock_counts
from billhook.inbox.tables.schema import (
    CLAIMABLE,
    FAILED,
    HAS_FINGERPRINT,
    ORDERED_RUN,
    UNREAD,
    delivery,
    failure,
    hourly_count,
    run,
    watermark,
)
from billhook.inbox.tables.sql import (
    TextOfTables,
    UtcDateTime,
    distinct_values,
    in_values,
    list_parameter,
    words,
)

OTHER_TYPES = "*"
"""The event type that deliveries of all types without a model are counted under: senders may invent many."""
DURATION_BOUNDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0),
)
"""The upper bounds of the steps of duration in seconds; the last step, beyond them, has none."""
NO_DURATION = -1
OF_ISSUE = "issue"
"""What is counted with the fingerprint of an issue as cause: failures whose rows were deleted."""
_SHARES = 2**20
"""Durations are summed in these parts, of a microsecond: such a sum is exact up to 272 years, in any order.
Others would fall by a rounding error when rows are merged, and Prometheus takes a fall for a restart."""
HOURS_KEPT_FOR = timedelta(days=3)
ACCEPTED_HOURS_KEPT_FOR = timedelta(days=31)
"""How long hours of accepted deliveries are kept. Their gaps tell when a type has stopped coming: see
inbox.watching.silence."""
KEPT_FOR = timedelta(days=396)
"""How long counts are kept by day: 13 months."""
BEFORE = datetime(1970, 1, 1, tzinfo=UTC)
"""The hour of all that is older, with one sum for each key, so that the sum over all time never falls."""
ROWS_READ = 25_000
"""How many rows of a table are read for figures by the minute, so that a page of them is quick."""
_STEP_LIMIT = 2_000


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


ATTEMPTS = (Counted.SUCCEEDED, Counted.FAILED, Counted.DEAD, Counted.DISCARDED)
"""What attempts of runs are counted as."""


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


class Counts(dict[CountKey, Sum]):
    """Counts in memory."""

    def add(
        self,
        what: Counted,
        at: datetime,
        *,
        source: str,
        event_type: str = "",
        cause: str = "",
        duration_seconds: float | None = None,
    ) -> None:
        """Count one thing that happened `at` that moment, and how long it took."""
        seconds, bucket = 0.0, NO_DURATION
        if duration_seconds is not None:
            seconds = round(duration_seconds * _SHARES) / _SHARES
            bucket = bisect_left(DURATION_BOUNDS, duration_seconds)
        key = CountKey(hour_of(at), source, event_type, "", what.value, cause, bucket)
        self.put(key, Sum(1, seconds, at))

    def put(self, key: CountKey, added: Sum) -> None:
        """Add to one sum."""
        known = self.get(key, Sum(0, 0.0, added.last_at))
        last_at = max(known.last_at, added.last_at)
        self[key] = Sum(known.number + added.number, known.seconds + added.seconds, last_at)

    def write(self, connection: Connection) -> None:
        """Add them to the table; the last step of a transaction: it locks rows until the commit."""
        if not self:
            return
        # In one order in all transactions: two that locked rows in different orders could deadlock.
        rows = [key._asdict() | added._asdict() for key, added in sorted(self.items())]
        new = dialect_of(connection).insert(hourly_count)
        row, more = hourly_count.c, new.excluded
        sums = {
            "number": row.number + more.number,
            "seconds": row.seconds + more.seconds,
            "last_at": case((more.last_at > row.last_at, more.last_at), else_=row.last_at),
        }
        connection.execute(new.on_conflict_do_update(index_elements=KEY, set_=sums), rows)


KEY = tuple(hourly_count.primary_key.columns)


def hour_of(moment: datetime) -> datetime:
    """Return the beginning of its hour, in UTC."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


class Watermark(NamedTuple):
    """Up to where rows are in the hourly counts, as its table has it.

    Ids, where rows get them in the order of time, spare an index by time.
    """

    finished_at: datetime
    """Up to where runs are counted: one that finishes at this time, or later, is not."""
    delivery_id: int
    quarantined_id: int
    """Up to where quarantined deliveries are counted: none up to this id is unread, so no more can follow."""
    failure_id: int


_END = Watermark(datetime(9999, 12, 31, tzinfo=UTC), *[2**62] * 3)


def read_counts(
    connection: Connection,
    known_types: Collection[str] | None,
    labels: Collection[str],
    since: datetime,
    only: Collection[Counted] = tuple(Counted),
    *,
    by_minute: bool = False,
) -> Counts:
    """Return what happened by these labels, from hourly counts and newer rows; other labels are empty.

    A handler is under its present name, with what was counted under its former names.

    By the minute, only things that have rows are known, from the newest ROWS_READ rows of each table. The
    `hour` of a key is a minute then.
    """
    if by_minute:
        rows = _BY_MINUTE
        mark = _watermark_at(connection, since)
    else:
        rows = union_all(select(hourly_count), select(_BY_HOUR)).subquery()
        mark = _watermark(connection)
    conditions = (rows.c.hour >= since, in_values(rows.c.what, only))
    counts = _sums(connection, known_types, rows, _between(mark, _END), labels, *conditions)
    renamed = present_names(connection) if "handler" in labels else {}
    if not renamed:
        return counts
    merged = Counts()
    for key, sums in counts.items():
        merged.put(key._replace(handler=renamed.get(key.handler, key.handler)), sums)
    return merged


def _sums(
    connection: Connection,
    known_types: Collection[str] | None,
    rows: Subquery,
    values: Mapping[str, object],
    labels: Collection[str] = CountKey._fields,
    *conditions: ColumnElement[bool],
) -> Counts:
    groups = [rows.c[name] for name in labels]
    sums = (func.sum(rows.c.number), func.sum(rows.c.seconds), func.max(rows.c.last_at))
    query = select(*groups, *sums).where(*conditions).group_by(*groups)
    counts = Counts()
    for *found, number, seconds, last_at in connection.execute(query, values):
        key = _NO_LABELS._replace(**dict(zip(labels, found, strict=True)))
        if known_types is not None and key.event_type and key.event_type not in known_types:
            key = key._replace(event_type=OTHER_TYPES)
        counts.put(key, Sum(int(number), float(seconds), last_at))
    return counts


@contextmanager
def keeping(
    connection: Connection, delivery_ids: Collection[int], known_types: Collection[str] | None
) -> Iterator[None]:
    """Keep the counts of these deliveries while the block removes rows: those above the watermark are added.

    The transaction holds `lock_counts`, and locks that keep others from changing these rows.
    """
    values = _between(_watermark(connection), _END) | {"delivery_ids": [*delivery_ids]}
    kept = _sums(connection, known_types, _OF_SOME, values)
    yield
    for key, left in _sums(connection, known_types, _OF_SOME, values).items() if kept else ():
        kept.put(key, Sum(-left.number, -left.seconds, left.last_at))
    Counts({key: removed for key, removed in kept.items() if removed.number > 0}).write(connection)
    # SQLite gives the ids of the newest rows again, once those are deleted.
    for name, table in (("delivery_id", delivery), ("quarantined_id", delivery), ("failure_id", failure)):
        newest = select(func.coalesce(func.max(table.c.id), 0)).scalar_subquery()
        connection.execute(update(watermark).where(watermark.c[name] > newest).values({name: newest}))


def count_quarantined_again(
    connection: Connection, delivery_ids: Collection[int], known_types: Collection[str] | None
) -> None:
    """Count those of the deliveries, which were just quarantined, that the watermark has passed already.

    They were quarantined and counted before, and then replayed. The watermark counts each id only once, as it
    passes, and passes no unread delivery: so all others are still to be counted.
    """
    passed = _END._replace(quarantined_id=_watermark(connection).quarantined_id)
    values = _between(_END._replace(quarantined_id=0), passed) | {"delivery_ids": [*delivery_ids]}
    _sums(connection, known_types, _OF_SOME, values).write(connection)


def count_read_late(
    connection: Connection, delivery_ids: Collection[int], known_types: Collection[str] | None
) -> None:
    """Count those of the deliveries as accepted, whose types are read now, that the watermark has passed.

    They were discarded or quarantined without a type when it passed them, and replayed since.
    """
    last_id = _watermark(connection).delivery_id
    late = [one for one in delivery_ids if one <= last_id]
    if late:
        passed = _END._replace(delivery_id=last_id)
        values = _between(_END._replace(delivery_id=0), passed) | {"delivery_ids": late}
        _sums(connection, known_types, _OF_SOME, values).write(connection)


def above_watermark(connection: Connection, now: datetime) -> datetime:
    """Return `now`, or the time of the watermark if that is later: a run that finishes then is counted."""
    return max(now, _watermark(connection).finished_at)


def as_above_watermark(moment: ColumnElement[datetime]) -> ColumnElement[datetime]:
    """Return the time of `above_watermark` as an SQL expression; NULL remains NULL."""
    first = select(watermark.c.finished_at).scalar_subquery()
    return case((moment < first, first), else_=moment)


def _watermark(connection: Connection) -> Watermark:
    return Watermark._make(connection.execute(select(watermark)).one())


def _watermark_at(connection: Connection, since: datetime) -> Watermark:
    """Return the watermark of a time, or a later one: no more than ROWS_READ rows of a table are after it."""
    last_ids = []
    for table, at in ((delivery, delivery.c.received_at), (failure, failure.c.failed_at)):
        newest = select(func.max(table.c.id)).scalar_subquery()
        before = or_(at < since, table.c.id <= newest - ROWS_READ)
        last = select(table.c.id).where(before).order_by(table.c.id.desc()).limit(1)
        last_ids.append(connection.execute(last).scalar() or 0)
    at = run.c.finished_at
    oldest = select(at).where(at >= since).order_by(at.desc()).offset(ROWS_READ).limit(1)
    finished_at = connection.execute(oldest).scalar() or since
    return Watermark(finished_at, last_ids[0], last_ids[0], last_ids[1])


def _rows(query: str, *parameters: BindParameter[Any]) -> Subquery:
    """Build the statement of what happened between two watermarks."""
    times = [bindparam(name, type_=UtcDateTime) for name in ("finished_at", "to_finished_at")]
    return TextOfTables(query).bindparams(*times, *parameters).columns(*hourly_count.c).subquery()


def _between(after: Watermark, until: Watermark) -> dict[str, Any]:
    return after._asdict() | {f"to_{name}": end for name, end in until._asdict().items()}


def _durations(seconds: str) -> str:
    """Return the expressions of the step of duration, of the number of attempts, and of all their seconds."""
    steps = " ".join(f"WHEN {seconds} <= {bound} THEN {step}" for step, bound in enumerate(DURATION_BOUNDS))
    step = f"CASE WHEN {seconds} IS NULL THEN {NO_DURATION} {steps} ELSE {len(DURATION_BOUNDS)} END"
    return f"{step}, count(*), sum(round(coalesce({seconds}, 0) * {_SHARES}) / {_SHARES})"


# Only of deliveries whose type is in the body. Of the others it is counted when they are stored.
_UNTYPED = "type_field IS NOT NULL AND coalesce(sent_as, event_type) = ''"
_NO_LABELS = CountKey(BEFORE, "", "", "", "", "", NO_DURATION)
# The type as it came, which an operator may have changed. A conflict was counted when it was stored.
_SENT = f"""'' AS cause, {NO_DURATION} AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM $delivery WHERE conflict_of IS NULL AND {{id}}"""
_HAS_TYPE = "coalesce(sent_as, event_type) != ''"
# Each part is grouped by itself, by few columns: together they would take twice the time.
_ROWS = f"""
    SELECT $hour(received_at) AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, {_SENT} AND {_HAS_TYPE} AND id > :delivery_id AND id <= :to_delivery_id
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT $hour(received_at), source, coalesce(sent_as, event_type), '',
        CASE WHEN {_UNTYPED} THEN 'untyped' ELSE 'quarantined' END, {_SENT}
        AND ({_HAS_TYPE} OR {_UNTYPED}) AND id > :quarantined_id AND id <= :to_quarantined_id
        AND {words(FAILED)} AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT $hour(failed_at), '', '', handler, 'failed', '', {_durations("failure.duration_seconds")},
        max(failed_at)
    FROM $failure JOIN $run ON run.id = run_id WHERE retried = 1 AND failure.id > :failure_id
        AND failure.id <= :to_failure_id AND {{delivery_id}} GROUP BY 1, 4, 7
    UNION ALL
    SELECT $hour(finished_at), '', '', handler, state, '', {_durations("duration_seconds")},
        max(finished_at)
    FROM $run WHERE finished_at >= :finished_at AND finished_at < :to_finished_at
        AND {{delivery_id}} GROUP BY 1, 4, 5, 7
"""  # noqa: S608 - constants
# Only of deliveries that are removed: those that are stored are counted by their failures.
_OF_ISSUES = f"""
    UNION ALL
    SELECT $hour(failed_at), '', '', '', '{OF_ISSUE}', fingerprint, {NO_DURATION}, count(*), 0.0,
        max(failed_at)
    FROM $failure JOIN $run ON run.id = run_id WHERE {words(HAS_FINGERPRINT)} AND {{delivery_id}}
    GROUP BY 1, 6
"""  # noqa: S608 - constants


_BY_HOUR, _BY_MINUTE = (
    _rows(query.format(id="id IS NOT NULL", delivery_id="delivery_id IS NOT NULL"))
    for query in (_ROWS, _ROWS.replace("$hour", "$minute"))
)
_OF_SOME = _rows(
    (_ROWS + _OF_ISSUES).format(
        id="$in_list(id, :delivery_ids)", delivery_id="$in_list(delivery_id, :delivery_ids)"
    ),
    list_parameter("delivery_ids", numbers=True),
)
"""What happened to some deliveries, and the failures of their issues."""


# On PostgreSQL a transaction may yet commit rows with lower ids and earlier times than others have now. So
# the next watermark is noted with the transactions that hold a lock which one that writes such rows takes
# first; it is set when all of these are over. SQLite has one writer, so there are none.


class Note(NamedTuple):
    """The watermark that may be set once these transactions are over."""

    end: Watermark
    transactions: frozenset[str]


def note(connection: Connection, now: datetime) -> Note | None:
    """Note the next watermark; None if no row is above this one. In a transaction that only reads."""
    mark, newest = _watermark(connection), _newest(connection, now)
    # By its order: without statistics PostgreSQL would look for one in the table, where mostly none is.
    later = select(run.c.id).where(run.c.finished_at >= mark.finished_at).order_by(run.c.finished_at).limit(1)
    if not any(map(lt, mark[1:], newest[1:])) and connection.execute(later).first() is None:
        return None
    own = dialect_of(connection)
    # After what is noted was read.
    now, writers = own.writers(connection, (delivery, run, failure), now)
    return Note(newest._replace(finished_at=now - own.watermark_lag), writers)


def advance(connection: Connection, noted: Watermark, known_types: Collection[str] | None) -> bool:
    """Move the watermark to what was noted, by some thousand rows; return whether there is more."""
    if not try_to_lock_counts(connection):
        return False
    mark = _watermark(connection)
    # Rows may have been deleted since it was noted, and SQLite gives their ids again.
    parts: Iterator[Any] = zip(mark, noted, _newest(connection, noted.finished_at), strict=True)
    end = Watermark._make(max(before, min(then, now)) for before, then, now in parts)
    at = run.c.finished_at
    later = select(at).where(at > mark.finished_at, at < end.finished_at).order_by(at)
    step = connection.execute(later.offset(_STEP_LIMIT).limit(1)).scalar_one_or_none()
    ids = [min(before + _STEP_LIMIT, last) for before, last in zip(mark[1:], end[1:], strict=True)]
    until = Watermark(step or end.finished_at, *ids)
    if until != mark:
        _sums(connection, known_types, _BY_HOUR, _between(mark, until)).write(connection)
        connection.execute(update(watermark).values(until._asdict()))
    return until != end


def _newest(connection: Connection, now: datetime) -> Watermark:
    """Return the watermark behind all rows that there are."""
    unread = select(func.min(delivery.c.id) - 1).where(UNREAD)
    # Counted by its type, which is not known yet.
    unread_type = unread.where(delivery.c.type_field.is_not(None)).scalar_subquery()
    delivery_id, failure_id = (func.coalesce(func.max(table.c.id), 0) for table in (delivery, failure))
    last = select(delivery_id).scalar_subquery()
    ids = select(
        func.coalesce(unread_type, last),
        func.coalesce(unread.scalar_subquery(), last),
        select(failure_id).scalar_subquery(),
    )
    newest = Watermark(now, *connection.execute(ids).one())
    # What is being read may yet be quarantined.
    first = _first_reading(connection)
    return newest if first is None else newest._replace(quarantined_id=min(newest.quarantined_id, first - 1))


_DISTINCT = ", ".join(
    distinct_values(state, "handler", "run", f"$by_index({words(CLAIMABLE)})state = '{state}'")
    for state in ("due", "running")
)
_NAMES = TextOfTables(
    f"WITH RECURSIVE {_DISTINCT} SELECT handler FROM due UNION SELECT handler FROM running"  # noqa: S608
).columns(column("handler", Text))


def _first_reading(connection: Connection) -> int | None:
    """Return the id of the first delivery that is being read, or waits for that; None if none is."""
    names = [name for name in connection.execute(_NAMES).scalars() if name and is_reading(name)]
    if not names:
        return None
    of_these = select(func.min(run.c.delivery_id)).where(in_values(run.c.handler, names))
    found = [connection.execute(of_these.where(which)).scalar() for which in (CLAIMABLE, ORDERED_RUN)]
    return min((number for number in found if number is not None), default=None)
