"""The end of a month. Source: spec, "Events", MonthEndReport and UnchargedEvents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, false, func, not_, or_, select

from billhook.events import MonthEndReport, UnchargedEvents
from billhook.sandbox.billing import agenda, contracts, currencies, customers, late_usage, reports
from billhook.sandbox.billing.exact import EXACT, ZERO
from billhook.sandbox.billing.reports import Billed, LateUsage, Uncharged
from billhook.sandbox.periods import months_after
from billhook.sandbox.storage.tables.billing import contract, invoice
from billhook.sandbox.storage.tables.entities import customer
from billhook.sandbox.storage.tables.usage import event
from billhook.sandbox.transaction import Transaction

__all__ = ["MOST_UNCHARGED", "end_month"]

MOST_UNCHARGED = 1000
"""Of more pairs of a customer and a name, or of more late usage, a report tells the first."""


def end_month(tx: Transaction, _: str) -> None:
    """The step `month_end`: report on the month that is over, and come back in a month.

    Raises MonthEndReport; and UnchargedEvents if some events of the month were counted by no meter. Those
    that were, but by none of a product that a contract sold to their customer, are told in the reports.
    """
    start, end = months_after(tx.now, -1), tx.now
    agenda.add(tx, agenda.next_month(end), "month_end", "")
    count, uncharged, unsold = _events(tx, start, end)
    facts: dict[str, Any] = {
        "start_time": start,
        "end_time": end,
        "events": count,
        "uncharged_events": sum(each.events for each in uncharged),
        "unsold_events": sum(each.events for each in unsold),
        "unsold": unsold[:MOST_UNCHARGED],
    }
    made = reports.keep(
        tx,
        {
            **facts,
            "type": "MonthEnd",
            "new_customers": _made(tx, customer, start, end),
            "new_contracts": _made(tx, contract, start, end),
            "billed": _billed(tx, start, end),
            "late_usage": _late_usage(tx)[:MOST_UNCHARGED] or None,
        },
    )
    tx.raise_event(MonthEndReport(date=tx.now, report_id=made.id))
    if uncharged:
        told = uncharged[:MOST_UNCHARGED]
        made = reports.keep(tx, {**facts, "type": "UnchargedEvents", "uncharged": told})
        tx.raise_event(UnchargedEvents(date=tx.now, report_id=made.id))


def _events(tx: Transaction, start: datetime, end: datetime) -> tuple[int, list[Uncharged], list[Uncharged]]:
    """How many events the month had, those that no meter counted, and those of nothing that was sold."""
    columns = (event.c.customer_id, event.c.name, event.c.meter_ids)
    rows = tx.connection.execute(
        select(*columns, func.count().label("events"))
        .where(_within(event.c.at, start, end))
        .group_by(*columns)
        .order_by(*columns)
    ).all()
    charged: dict[str, frozenset[str]] = {}
    uncharged: defaultdict[tuple[str, str], int] = defaultdict(int)
    unsold: defaultdict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        if not row.meter_ids:
            uncharged[row.customer_id, row.name] += row.events
            continue
        if row.customer_id not in charged:
            charged[row.customer_id] = _charging(tx, row.customer_id, start, end)
        if charged[row.customer_id].isdisjoint(row.meter_ids.split()):
            unsold[row.customer_id, row.name] += row.events
    return sum(row.events for row in rows), _listed(uncharged), _listed(unsold)


def _listed(counts: Mapping[tuple[str, str], int]) -> list[Uncharged]:
    return [Uncharged(customer_id=owner, name=name, events=count) for (owner, name), count in counts.items()]


def _charging(tx: Transaction, customer_id: str, start: datetime, end: datetime) -> frozenset[str]:
    """The meters of what was sold to the customer at any time of the month."""
    sold = contracts.CONTRACTS.all(
        tx,
        contract.c.customer_id == customer_id,
        contract.c.status.in_(("Active", "Expired")),
        contract.c.deleted_at.is_(None),
        contract.c.start_at < end,
        contract.c.end_at.is_(None) | (contract.c.end_at > start),
    )
    return frozenset(
        product.meter.id for each in sold for product in contracts.products(tx, each) if product.meter
    )


def _made(tx: Transaction, table: Table, start: datetime, end: datetime) -> int:
    made = select(func.count()).select_from(table).where(_within(table.c.created_at, start, end))
    return tx.connection.execute(made).scalar_one()


def _billed(tx: Transaction, start: datetime, end: datetime) -> list[Billed]:
    """Invoices and their sum, by currency."""
    amounts: defaultdict[str, list[Decimal]] = defaultdict(list)
    # What a cycle comes to that ends with the month is issued at that moment: it is the month's.
    with_its_cycle = func.coalesce(invoice.c.cycle_end == invoice.c.issued_at, false())
    ended = and_(with_its_cycle, invoice.c.issued_at > start, invoice.c.issued_at <= end)
    others = and_(not_(with_its_cycle), _within(invoice.c.issued_at, start, end))
    issued = select(invoice.c.currency, invoice.c.amount).where(or_(ended, others))
    for currency, amount in tx.connection.execute(issued):
        amounts[currency].append(amount)
    with localcontext(EXACT):
        return [
            Billed(currency=currency, invoices=len(each), amount=sum(each, ZERO))
            for currency, each in sorted(amounts.items())
        ]


def _late_usage(tx: Transaction) -> list[LateUsage]:
    """What came too late for any invoice, and was in no report."""
    found = []
    for billed, charge in late_usage.write_off(tx):
        sold = contracts.CONTRACTS.get(tx, billed.contract_id)
        found.append(
            LateUsage(
                customer_id=billed.customer_id,
                contract_id=billed.contract_id,
                product_id=charge.product_id,
                product_name=charge.product_name,
                start_time=billed.cycle_start,
                end_time=billed.cycle_end,
                units=charge.units,
                currency=currencies.of(sold, customers.find(tx, billed.customer_id)),
                amount=charge.total,
            )
        )
    return found


def _within(column: ColumnElement[datetime], start: datetime, end: datetime) -> ColumnElement[bool]:
    return and_(column >= start, column < end)
