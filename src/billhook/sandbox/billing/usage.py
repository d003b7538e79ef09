"""What customers used: by meter and by day or part of one, so that asking costs next to nothing.

Source: spec, "Resources and their fields", Event (ingested) and Measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import func, select

from billhook.sandbox.billing.exact import ZERO, exact_sum
from billhook.sandbox.billing.meter_fields import Meter, Method
from billhook.sandbox.storage.tables.usage import usage_day, usage_instance
from billhook.sandbox.storage.types import microseconds
from billhook.sandbox.transaction import Transaction

__all__ = ["Span", "consumed", "day_of", "without"]

Span = tuple[datetime, datetime]
"""From a moment to before another."""

_EPOCH = date(1970, 1, 1)


def day_of(moment: datetime | date) -> int:
    """The day of a moment in UTC, as days since 1970."""
    day = moment.astimezone(UTC).date() if isinstance(moment, datetime) else moment
    return (day - _EPOCH).days


def consumed(
    tx: Transaction, customer_id: str, meter: Meter, spans: Sequence[Span], last_day: int | None = None
) -> Decimal:
    """Units that a customer used within these spans of time, each from its begin to before its end.

    A day that was measured counts with its measurement alone, to the span that is on when it begins, or that
    begins on it; `last_day` is counted besides, if it was measured.
    """
    days = usage_day.c
    if not spans:
        return ZERO
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    rows = tx.connection.execute(
        select(days.day, days.since, days.events, days.total, days.highest, days.last, days.measured)
        .where(
            days.customer_id == customer_id,
            days.meter_id == meter.id,
            days.day >= day_of(first),
            days.day <= day_of(last),
        )
        .order_by(days.day, days.since)
    ).all()
    by_measurement = {row.day for row in rows if row.measured is not None}
    whole = [(day_of(start), day_of(end)) for start, end in spans]
    exact = [(microseconds(start), microseconds(end)) for start, end in spans]
    measured = [
        row
        for row in rows
        if row.measured is not None
        and (row.day == last_day or any(start <= row.day < end for start, end in whole))
    ]
    counted = [
        row
        for row in rows
        if row.day not in by_measurement and any(start <= row.since < end for start, end in exact)
    ]
    return _figure(tx, customer_id, meter, measured, counted)


def without(span: Span, taken: Sequence[Span]) -> list[Span]:
    """What is left of a span of time."""
    left = [span]
    for start, end in taken:
        left = [
            each
            for begin, finish in left
            for each in ((begin, min(finish, start)), (max(begin, end), finish))
            if each[0] < each[1]
        ]
    return left


def _figure(
    tx: Transaction, customer_id: str, meter: Meter, measured: Sequence[Any], counted: Sequence[Any]
) -> Decimal:
    """What the meter makes of days that were measured, and of rows of days that were not."""
    figures = [row.measured for row in measured]
    match meter.aggregation_method:
        case Method.COUNT:
            return exact_sum([*figures, *(Decimal(row.events) for row in counted)])
        case Method.SUM:
            return exact_sum([*figures, *(row.total for row in counted)])
        case Method.MAX:
            return max([*figures, *(row.highest for row in counted if row.highest is not None)], default=ZERO)
        case Method.LAST:
            lasts = [(row.since, row.measured) for row in measured]
            lasts += [(row.since, row.last) for row in counted if row.last is not None]
            return max(lasts, default=(0, ZERO))[1]
        case Method.UNIQUE:
            return exact_sum([*figures, _instances(tx, customer_id, meter, [row.since for row in counted])])


def _instances(tx: Transaction, customer_id: str, meter: Meter, since: list[int]) -> Decimal:
    """How many different ones there are in these rows."""
    seen = usage_instance.c
    count = tx.connection.execute(
        select(func.count(seen.instance.distinct())).where(
            seen.customer_id == customer_id, seen.meter_id == meter.id, seen.since.in_(since)
        )
    ).scalar_one()
    return Decimal(count)
