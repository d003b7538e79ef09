"""Figures over time, for charts: usage by day and meter, invoiced amounts by month, balances of pools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import Row, func, select

from billhook.sandbox.billing.daily_usage import day_number, figure
from billhook.sandbox.billing.meters import Meter
from billhook.sandbox.billing.money import EXACT, ZERO, exact_sum
from billhook.sandbox.clock import add_months
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import ListPage, fetch_page, matching
from billhook.sandbox.storage.tables import (
    credit_lot,
    credit_pool,
    invoice,
    ledger_entry,
    usage_day,
    usage_instance,
)

_CENT = Decimal("0.01")


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
    of, seen = usage_day.c, usage_instance.c
    where = of.day.between(first, last), *matching((of.customer_id, customer_id))
    # A day may have several rows: a billing cycle that ends within it has divided it.
    rows_of: defaultdict[tuple[str, str, int], list[Any]] = defaultdict(list)
    query = select(usage_day).where(*where).order_by(of.customer_id, of.meter_id, of.day, of.since)
    for row in tx.connection.execute(query):
        rows_of[row.customer_id, row.meter_id, row.day].append(row)
    key = seen.customer_id, seen.meter_id, seen.day
    distinct = select(*key, func.count(seen.instance.distinct())).group_by(*key)
    distinct = distinct.where(seen.day.between(first, last), *matching((seen.customer_id, customer_id)))
    counts = {(row[0], row[1], row[2]): row[3] for row in tx.connection.execute(distinct)}
    for (customer, meter_id, day), rows in rows_of.items():
        if meter_id in methods:
            measured = [row for row in rows if row.measured is not None]
            counted, count = ([], 0) if measured else (rows, counts.get((customer, meter_id, day), 0))
            figures[meter_id][day].append(figure(methods[meter_id], measured, counted, count))
    return [
        UsageSeries(meter, [exact_sum(figures[meter.id][day]) for day in range(first, last + 1)])
        for meter in meters
    ]


@dataclass(slots=True)
class InvoicedMonth:
    """What was invoiced in a month, in US dollars at the rates of the dates of issue, by `billingStatus`."""

    month: datetime
    """Its first midnight, UTC."""
    count: int = 0
    amounts: dict[str, Decimal] = field(default_factory=lambda: defaultdict(lambda: ZERO))

    @property
    def total(self) -> Decimal:
        """The amount of all states, in US dollars and cents."""
        with localcontext(EXACT):
            return sum(self.amounts.values(), ZERO).quantize(_CENT)


def invoices_by_month(
    tx: Transaction, months: int, customer_id: str | None = None
) -> Sequence[InvoicedMonth]:
    """Return the last `months` months up to the current one of the sandbox's time, oldest first."""
    current = tx.now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    found = {
        month: InvoicedMonth(month)
        for month in (add_months(current, -back) for back in range(months - 1, -1, -1))
    }
    of = invoice.c
    where = [of.issued_at >= min(found), *matching((of.customer_id, customer_id))]
    query = select(of.issued_at, of.billing_status, of.amount, of.usd_rate).where(*where)
    for issued_at, status, amount, rate in tx.connection.execute(query):
        month = found.get(issued_at.replace(day=1, hour=0, minute=0, second=0, microsecond=0))
        if month is not None:
            month.count += 1
            with localcontext(EXACT):
                month.amounts[status] += amount * rate
    return list(found.values())


def pool_page(tx: Transaction, limit: int, customer_id: str | None) -> ListPage[Row[Any]]:
    """Return the first page of the credit pools, of one customer or of all, newest first."""
    query = select(credit_pool).where(*matching((credit_pool.c.customer_id, customer_id)))
    return fetch_page(tx, query, limit, None, credit_pool.c.seq, newest_first=True)


def balance_history(tx: Transaction, pool: Row[Any], most: int) -> list[tuple[datetime, Decimal]]:
    """Return (moment, balance after it) of the last `most` ledger entries of a pool, oldest first."""
    of = ledger_entry.c
    # By the customer as well: the index of ledgers begins with it.
    where = of.customer_id == pool.customer_id, of.pool_id == pool.id
    query = select(of.created_at, of.balance_after).where(*where)
    rows = tx.connection.execute(query.order_by(of.seq.desc()).limit(most)).all()
    return [(at, balance) for at, balance in reversed(rows)]


def newest_entries(
    tx: Transaction, limit: int, cursor: str | None, customer_id: str | None
) -> ListPage[Row[Any]]:
    """Return a page of ledger entries with kind and credit product of their pool, newest first."""
    query = (
        select(ledger_entry, credit_pool.c.kind, credit_pool.c.credit_product_id)
        .join(credit_pool, credit_pool.c.id == ledger_entry.c.pool_id)
        .where(*matching((ledger_entry.c.customer_id, customer_id)))
    )
    return fetch_page(tx, query, limit, cursor, ledger_entry.c.seq, newest_first=True)


def next_expiries(tx: Transaction, pool_ids: Sequence[str]) -> dict[str, datetime]:
    """Return when the first credits of each pool expire; a pool whose credits never do is left out."""
    of = credit_lot.c
    query = (
        select(of.pool_id, func.min(of.expires_at))
        .where(of.pool_id.in_(pool_ids), of.expires_at.is_not(None))
        .group_by(of.pool_id)
    )
    return {row[0]: row[1] for row in tx.connection.execute(query)}
