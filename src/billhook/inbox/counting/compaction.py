"""Compact the hourly counts: hours of past days become days, and what is older than 13 months one sum."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, and_, delete, or_, select, tuple_

from billhook.inbox.counting.counts import (
    ACCEPTED_HOURS_KEPT_FOR,
    BEFORE,
    HOURS_KEPT_FOR,
    KEPT_FOR,
    KEY,
    Counted,
    CountKey,
    Counts,
    Sum,
    hour_of,
)
from billhook.inbox.tables.locks import try_to_lock_counts
from billhook.inbox.tables.schema import hourly_count

_LIMIT = 2_000
"""Rows that are merged in one transaction."""
_HOURS = 24
"""How many hours one transaction looks at."""


def compact(connection: Connection, now: datetime) -> int:
    """Merge the hours of past days, and what is older than 13 months.

    Takes up to some thousand rows; returns how many, 0 when there is nothing left to do.
    """
    if not try_to_lock_counts(connection):
        return 0
    column, midnight = hourly_count.c, hour_of(now).replace(hour=0)
    is_past = or_(
        column.hour < midnight - ACCEPTED_HOURS_KEPT_FOR,
        and_(column.hour < midnight - HOURS_KEPT_FOR, column.what != Counted.ACCEPTED.value),
    )
    past = select(column.hour).where(column.hour > BEFORE, is_past).distinct()
    periods = {
        hour: BEFORE if hour < midnight - KEPT_FOR else hour.replace(hour=0)
        for hour in connection.execute(past).scalars()
    }
    hours = [hour for hour, period in periods.items() if hour != period][:_HOURS]
    # Skipped, not waited for: what another transaction adds to.
    chosen = select(*KEY).where(column.hour.in_(hours), is_past).limit(_LIMIT)
    taken = delete(hourly_count).where(tuple_(*KEY).in_(chosen.with_for_update(skip_locked=True)))
    rows = connection.execute(taken.returning(*column)).all() if hours else []
    merged = Counts()
    for row in rows:
        key = CountKey._make(row[: len(KEY)])
        merged.put(key._replace(hour=periods[key.hour]), Sum._make(row[len(KEY) :]))
    merged.write(connection)
    return len(rows)
