"""What customers used: by meter and day, kept up with every batch, so that asking costs next to nothing.

Source: spec, "Resources and their fields", Event (ingested) and Measurement.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from sqlalchemy import func, select

from billhook.sandbox.billing.exact import ZERO, exact_sum
from billhook.sandbox.billing.meter_fields import Meter, Method
from billhook.sandbox.storage.tables.usage import usage_day, usage_instance
from billhook.sandbox.transaction import Transaction

__all__ = ["consumed", "day_of"]

_EPOCH = date(1970, 1, 1)


def day_of(moment: datetime | date) -> int:
    """The day of a moment in UTC, as days since 1970."""
    day = moment.astimezone(UTC).date() if isinstance(moment, datetime) else moment
    return (day - _EPOCH).days


def consumed(tx: Transaction, customer_id: str, meter: Meter, start: datetime, end: datetime) -> Decimal:
    """Units that a customer used from the day of `start` to the day before that of `end`, in UTC.

    Usage is known by the day: a cycle begins with the whole day on which it starts, and the next one begins
    on the day on which it ends. A day that was measured counts with its measurement alone.
    """
    days = usage_day.c
    where = (
        days.customer_id == customer_id,
        days.meter_id == meter.id,
        days.day >= day_of(start),
        days.day < day_of(end),
    )
    rows = tx.connection.execute(
        select(days.day, days.events, days.total, days.highest, days.last, days.measured)
        .where(*where)
        .order_by(days.day)
    ).all()
    measured = [row.measured for row in rows if row.measured is not None]
    counted = [row for row in rows if row.measured is None]
    match meter.aggregation_method:
        case Method.COUNT:
            return exact_sum([*measured, *(Decimal(row.events) for row in counted)])
        case Method.SUM:
            return exact_sum([*measured, *(row.total for row in counted)])
        case Method.MAX:
            return max(
                [*measured, *(row.highest for row in counted if row.highest is not None)], default=ZERO
            )
        case Method.LAST:
            lasts = [row.last if row.measured is None else row.measured for row in rows]
            return next((value for value in reversed(lasts) if value is not None), ZERO)
        case Method.UNIQUE:
            unmeasured = [row.day for row in counted]
            return exact_sum([*measured, _instances(tx, customer_id, meter, unmeasured)])


def _instances(tx: Transaction, customer_id: str, meter: Meter, days: list[int]) -> Decimal:
    """How many different ones there are on these days."""
    seen = usage_instance.c
    count = tx.connection.execute(
        select(func.count(seen.instance.distinct())).where(
            seen.customer_id == customer_id, seen.meter_id == meter.id, seen.day.in_(days)
        )
    ).scalar_one()
    return Decimal(count)
