"""Count by hour what happens to deliveries and runs, for `billhook status`, metrics and pages.

The transaction that plans a delivery or settles a run counts it, so that a count is as true as its rows, and
remains when retention has deleted them. What no transaction is written for, a refusal or a duplicate, is
counted in memory and written every few seconds (see billhook.inbox.buffered_counts).

Rows are few, however much happens: one for each hour, source, event type, handler, what, cause and step of
duration. Types without a model share one name. After three days hours become days, and after 13 months one
sum. Writers on PostgreSQL are spread over shards, because two transactions that count in one row
wait for one another; on SQLite there is one writer anyway.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

from sqlalchemy import ColumnElement, Connection, and_, delete, func, select, tuple_

from billhook.inbox.schema import hourly_count
from billhook.inbox.sql import json_text, utc_text

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
SHARDS = 16
MERGED = -1
"""The shard of rows that were merged: of past hours and days."""
_COMPACT_LIMIT = 2_000
_COMPACTION = 0x636E7473  # "cnts"


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
    """What a row counts; in the order of the table's primary key, without the shard."""

    hour: datetime
    source: str
    event_type: str
    handler: str
    what: str
    cause: str
    bucket: int


@dataclass(slots=True)
class _Sum:
    number: int
    seconds: float
    last_at: datetime

    def add(self, other: _Sum) -> None:
        self.number += other.number
        self.seconds += other.seconds
        if other.last_at > self.last_at:
            self.last_at = other.last_at


class Counts:
    """Counts of one transaction, or of some seconds, until they are written."""

    def __init__(self) -> None:
        self._sums: dict[CountKey, _Sum] = {}
        # The last hour counted in: most are of the same, and to compute it takes long beside the rest.
        self._hour = self._next_hour = BEFORE

    def __bool__(self) -> bool:
        return bool(self._sums)

    def __len__(self) -> int:
        return len(self._sums)

    def add(
        self,
        what: Counted,
        at: datetime,
        *,
        source: str,
        event_type: str = "",
        handler: str = "",
        cause: str = "",
        duration_seconds: float | None = None,
    ) -> None:
        """Count one thing that happened `at` that moment, and how long it took."""
        if not self._hour <= at < self._next_hour:
            self._hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            self._next_hour = self._hour + timedelta(hours=1)
        bucket, seconds = NO_DURATION, 0.0
        if duration_seconds is not None:
            bucket = bisect_left(DURATION_BOUNDS, duration_seconds)
            seconds = round(duration_seconds * _PARTS_OF_SECOND) / _PARTS_OF_SECOND
        key = CountKey(self._hour, source, event_type, handler, what.value, cause, bucket)
        self._add(key, _Sum(1, seconds, at))

    def merge(self, other: Counts) -> None:
        """Add other counts to these."""
        for key, added in other._sums.items():
            self._add(key, replace(added))

    def _add(self, key: CountKey, added: _Sum) -> None:
        known = self._sums.setdefault(key, added)
        if known is not added:
            known.add(added)

    def write(self, connection: Connection, owner: str) -> None:
        """Add them to the table; the last step of a transaction: it locks rows until the commit."""
        is_postgres = connection.dialect.name == "postgresql"
        self.write_to_shard(connection, shard_of(owner) if is_postgres else 0)

    def write_to_shard(self, connection: Connection, shard: int) -> None:
        """Add them to the rows of one shard."""
        if self._sums and connection.dialect.name == "postgresql":
            connection.exec_driver_sql(_ADD_ON_POSTGRES, {"counts": self.for_postgres(shard)})
        elif self._sums:
            connection.exec_driver_sql(_ADD_ON_SQLITE, self.for_sqlite(shard))

    def for_sqlite(self, shard: int = 0) -> list[tuple[Any, ...]]:
        """Return the rows to add, as its driver takes them."""
        rows = self._rows(shard)
        return [(utc_text(hour), *others, utc_text(last_at)) for hour, *others, last_at in rows]

    def for_postgres(self, shard: int) -> str:
        """Return the rows to add as JSON."""
        return json_text(dict(zip(_COLUMNS, row, strict=True)) for row in self._rows(shard))

    def _rows(self, shard: int) -> list[tuple[Any, ...]]:
        # In one order in all transactions: two that locked rows in different orders could deadlock.
        ordered = sorted(self._sums.items(), key=itemgetter(0))
        return [(*key, shard, one.number, one.seconds, one.last_at) for key, one in ordered]


def shard_of(owner: str) -> int:
    """Return the shard that a process counts in."""
    return crc32(owner.encode()) % SHARDS


_COLUMNS = tuple(column.name for column in hourly_count.columns)
_KEY = tuple(hourly_count.primary_key.columns)
_INTO = f"INSERT INTO billhook_count ({', '.join(_COLUMNS)})"
_ADD = """
    ON CONFLICT (hour, source, event_type, handler, what, cause, bucket, shard) DO UPDATE SET
        number = billhook_count.number + excluded.number,
        seconds = billhook_count.seconds + excluded.seconds,
        last_at = {latest}(billhook_count.last_at, excluded.last_at)
"""
_ADD_ON_SQLITE = f"{_INTO} VALUES ({', '.join('?' * len(_COLUMNS))}) {_ADD.format(latest='max')}"
_ROWS = "jsonb_populate_recordset(NULL::billhook_count, %(counts)s::jsonb)"
_ADD_ON_POSTGRES = f"{_INTO} SELECT {', '.join(_COLUMNS)} FROM {_ROWS} {_ADD.format(latest='greatest')}"  # noqa: S608


# --- compaction ---------------------------------------------------------------------------------------


def compact(connection: Connection, now: datetime) -> int:
    """Merge the shards of past hours, the hours of past days, and what is older than 13 months.

    Takes up to some thousand rows; returns how many, 0 when there is nothing left to do. Waits for no
    transaction that counts: it skips their rows, and only it writes to the shard of merged rows.
    """
    if not _lock_compaction(connection):
        return 0
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    midnight = hour.replace(hour=0)
    # Not the hour before: a transaction that began in it may count for a while longer.
    sharded = and_(hourly_count.c.hour < hour - timedelta(hours=1), hourly_count.c.shard != MERGED)
    old = and_(hourly_count.c.hour < midnight - KEPT_FOR, hourly_count.c.hour > BEFORE)
    return (
        _merge(connection, sharded, lambda hour_row: hour_row)
        or _merge(connection, old, lambda _: BEFORE)
        or _merge_a_day(connection, before=midnight - HOURS_KEPT_FOR)
    )


def _merge_a_day(connection: Connection, before: datetime) -> int:
    hours = select(hourly_count.c.hour).where(hourly_count.c.hour < before).distinct()
    unmerged = [hour_row for hour_row in connection.execute(hours).scalars() if hour_row.hour]
    if not unmerged:
        return 0
    day = min(unmerged).replace(hour=0)
    of_it = and_(hourly_count.c.hour > day, hourly_count.c.hour < day + timedelta(days=1))
    return _merge(connection, of_it, lambda _: day)


def _lock_compaction(connection: Connection) -> bool:
    """Return whether this transaction is the only one that compacts, until it ends."""
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.execute(select(func.pg_try_advisory_xact_lock(_COMPACTION))).scalar_one())


def _merge(connection: Connection, rows: ColumnElement[bool], period: Callable[[datetime], datetime]) -> int:
    """Merge some of these rows into the rows of their period; return how many there were."""
    taken = connection.execute(delete(hourly_count).where(_any_of(rows)).returning(*hourly_count.c)).all()
    merged = Counts()
    for hour, source, event_type, handler, what, cause, bucket, _, *sums in taken:
        key = CountKey(period(hour), source, event_type, handler, what, cause, bucket)
        merged._add(key, _Sum(*sums))
    merged.write_to_shard(connection, MERGED)
    return len(taken)


def _any_of(rows: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition that a row is one of some thousand of these that no other transaction locks."""
    chosen = select(*_KEY).where(rows).limit(_COMPACT_LIMIT).with_for_update(skip_locked=True)
    return tuple_(*_KEY).in_(chosen)
