"""Usage by day and meter, for charts: of one customer, or of all customers together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, func, select

from billhook.sandbox.billing.decimals import ZERO, exact_sum
from billhook.sandbox.billing.usage.daily_usage import day_number
from billhook.sandbox.billing.usage.meters import AggregationMethod, Meter
from billhook.sandbox.storage.tables.usage import usage_day, usage_instance
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["UsageSeries", "days_up_to", "usage_by_day"]

_DayKey = tuple[str, str, int]
"""Customer, meter and day."""


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """One meter's figures: one number for each day, the sum of the customers' figures of that day."""

    meter: Meter
    values: Sequence[Decimal]


def days_up_to(last: date, count: int) -> list[date]:
    """Return `count` days in a row, the last of them `last`."""
    return [last - timedelta(days=back) for back in range(count - 1, -1, -1)]


def usage_by_day(
    tx: Transaction, meters: Sequence[Meter], days: Sequence[date], customer_id: str | None = None
) -> list[UsageSeries]:
    """Return the usage of each of `meters` on each of `days`, which follow one another.

    A day's figure is by the meter's method; a measurement of the day replaces what its events count for.
    """
    first, last = day_number(days[0]), day_number(days[-1])
    figures: defaultdict[str, defaultdict[int, list[Decimal]]] = defaultdict(lambda: defaultdict(list))
    methods = {meter.id: meter.aggregation_method for meter in meters}
    distinct = _distinct_values(tx, first, last, customer_id)
    for (customer, meter_id, day), rows in _rows_by_day(tx, first, last, customer_id).items():
        if meter_id in methods:
            key = customer, meter_id, day
            figures[meter_id][day].append(_figure(methods[meter_id], rows, distinct.get(key, 0)))
    return [
        UsageSeries(meter, [exact_sum(figures[meter.id][day]) for day in range(first, last + 1)])
        for meter in meters
    ]


def _rows_by_day(
    tx: Transaction, first: int, last: int, customer_id: str | None
) -> Mapping[_DayKey, list[Any]]:
    """Return the rows of each day, which a billing cycle that ends within it has divided, in their order."""
    of = usage_day.c
    query = select(usage_day).where(of.day.between(first, last), *_of_customer(of.customer_id, customer_id))
    found: defaultdict[_DayKey, list[Any]] = defaultdict(list)
    for row in tx.connection.execute(query.order_by(of.customer_id, of.meter_id, of.day, of.since)):
        found[row.customer_id, row.meter_id, row.day].append(row)
    return found


def _distinct_values(
    tx: Transaction, first: int, last: int, customer_id: str | None
) -> Mapping[_DayKey, int]:
    of = usage_instance.c
    key = of.customer_id, of.meter_id, of.day
    query = (
        select(*key, func.count(of.instance.distinct()))
        .where(of.day.between(first, last), *_of_customer(of.customer_id, customer_id))
        .group_by(*key)
    )
    return {(customer, meter, day): count for customer, meter, day, count in tx.connection.execute(query)}


def _of_customer(column: ColumnElement[str], customer_id: str | None) -> list[ColumnElement[bool]]:
    return [] if customer_id is None else [column == customer_id]


def _figure(method: AggregationMethod | str, rows: Sequence[Any], distinct: int) -> Decimal:
    """Return the figure of a customer's day."""
    measured = [row.measured for row in rows if row.measured is not None]
    if measured:
        return exact_sum(measured)
    match method:
        case AggregationMethod.COUNT:
            return Decimal(sum(row.events for row in rows))
        case AggregationMethod.SUM:
            return exact_sum([row.total for row in rows])
        case AggregationMethod.MAX:
            return max((row.highest for row in rows if row.highest is not None), default=ZERO)
        case AggregationMethod.LAST:
            lasts = [(row.since, row.last) for row in rows if row.last is not None]
            return max(lasts, default=(0, ZERO))[1]
        case _:
            return Decimal(distinct)
