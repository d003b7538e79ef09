"""The reports of a month's end. The specification shows only their ids.

Source: spec, "Events", MonthEndReport and UnchargedEvents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field, StrictStr
from sqlalchemy import ColumnElement, Table, and_, false, func, insert, not_, or_, select

from billhook.events import MonthEndReport, UnchargedEvents
from billhook.fields.types import ExactDecimal, Integer, MaybeListOf, UtcDatetime
from billhook.sandbox import scheduled_jobs
from billhook.sandbox.billing import contract_lifecycle
from billhook.sandbox.billing.money import exact_sum
from billhook.sandbox.clock import add_months
from billhook.sandbox.operations import SandboxResource
from billhook.sandbox.storage.database import Transaction, new_id
from billhook.sandbox.storage.tables import contract, customer, event, invoice, report
from billhook.sandbox.webhooks.outbox import raise_event

_REPORTED_KEY = "reported_events"
"""The serial number of the newest event at the last report."""
MAX_REPORT_ROWS = 1000
"""The maximum number of rows that a report lists; the totals count all of them."""


class BilledTotal(SandboxResource, register=False):
    """The invoices in one currency."""

    currency: Annotated[StrictStr, Field(examples=["USD"])]
    """Currency code."""
    invoices: Annotated[Integer, Field(examples=[3])]
    """Number of invoices issued."""
    amount: ExactDecimal
    """Sum of their amounts."""


class EventGroup(SandboxResource, register=False):
    """The events of one name and one customer."""

    customer_id: Annotated[StrictStr, Field(examples=["cus_1042"])]
    """Id of the customer."""
    name: Annotated[StrictStr, Field(examples=["api_call"])]
    """Name of the events."""
    events: Annotated[Integer, Field(examples=[12])]
    """Number of events."""


class Report(SandboxResource, register=False):
    """The report of a month."""

    id: Annotated[StrictStr, Field(examples=["rep_1"])]
    """Id of the report."""
    type: Annotated[StrictStr, Field(examples=["MonthEnd"])]
    """MonthEnd or UnchargedEvents."""
    start_time: UtcDatetime
    """Start of the month."""
    end_time: UtcDatetime
    """End of the month."""
    events: Annotated[Integer, Field(examples=[1200])]
    """Number of events in the month, and of earlier ones that came after that month's report."""
    uncharged_events: Integer
    """Number of events that no meter counted."""
    new_customers: Integer | None = None
    """Customers created in the month."""
    new_contracts: Integer | None = None
    """Contracts created in the month."""
    billed: MaybeListOf[BilledTotal] = None
    """Invoices issued in the month."""
    uncharged: MaybeListOf[EventGroup] = None
    """Events that no meter counted; at most 1000 entries."""


class ReportResponse(SandboxResource, register=False):
    """A report."""

    report: Report
    """The report."""


def store_report(tx: Transaction, fields: Mapping[str, Any]) -> Report:
    """Store a report with these values, by Report's field names."""
    stored = Report(id=new_id("rep"), **fields)
    tx.connection.execute(insert(report).values(id=stored.id, body=stored.to_json().decode()))
    return stored


def handle_month_end(tx: Transaction, _: str) -> None:
    """Handle the job `month_end`: bill late usage, report on the month, and schedule the next month's end.

    Emits MonthEndReport; and UnchargedEvents if no meter counted some of the month's events.
    """
    # tx.now is the job's due time: the first midnight of a month.
    start, end = add_months(tx.now, -1), tx.now
    scheduled_jobs.schedule(tx, scheduled_jobs.next_month_start(end), "month_end", "")
    contract_lifecycle.bill_late_usage(tx)
    count, uncharged = _count_events(tx, start, end)
    fields: dict[str, Any] = {
        "start_time": start,
        "end_time": end,
        "events": count,
        "uncharged_events": sum(each.events for each in uncharged),
    }
    stored = store_report(
        tx,
        {
            **fields,
            "type": "MonthEnd",
            "new_customers": _count_created(tx, customer, start, end),
            "new_contracts": _count_created(tx, contract, start, end),
            "billed": _billed_totals(tx, start, end),
        },
    )
    raise_event(tx, MonthEndReport(date=tx.now, report_id=stored.id))
    # An UnchargedEvents event would ask users to look for a missing meter.
    if uncharged:
        listed = uncharged[:MAX_REPORT_ROWS]
        stored = store_report(tx, {**fields, "type": "UnchargedEvents", "uncharged": listed})
        raise_event(tx, UnchargedEvents(date=tx.now, report_id=stored.id))


def _count_events(tx: Transaction, start: datetime, end: datetime) -> tuple[int, list[EventGroup]]:
    """Return the number of events to report, and those of them that no meter counted.

    These are the month's events, and those of earlier months that have arrived since the last report.
    """
    reported = tx.setting(_REPORTED_KEY) or 0
    tx.store_setting(_REPORTED_KEY, tx.connection.scalar(select(func.max(event.c.seq))))
    columns = (event.c.customer_id, event.c.name)
    uncharged = func.count().filter(event.c.meter_ids == "")
    rows = tx.connection.execute(
        select(*columns, func.count().label("events"), uncharged.label("uncharged"))
        .where(or_(_within(event.c.at, start, end), and_(event.c.at < start, event.c.seq > reported)))
        .group_by(*columns)
        .order_by(*columns)
    ).all()
    found = [
        EventGroup(customer_id=row.customer_id, name=row.name, events=row.uncharged)
        for row in rows
        if row.uncharged
    ]
    return sum(row.events for row in rows), found


def _count_created(tx: Transaction, table: Table, start: datetime, end: datetime) -> int:
    stored = select(func.count()).select_from(table).where(_within(table.c.created_at, start, end))
    return tx.connection.scalars(stored).one()


def _billed_totals(tx: Transaction, start: datetime, end: datetime) -> list[BilledTotal]:
    """Return number and sum of the month's invoices, by currency."""
    amounts: defaultdict[str, list[Decimal]] = defaultdict(list)
    # The invoice of a cycle that ends with the month is issued at that very moment: it belongs to the month.
    with_its_cycle = func.coalesce(invoice.c.cycle_end == invoice.c.issued_at, false())
    ended = and_(with_its_cycle, invoice.c.issued_at > start, invoice.c.issued_at <= end)
    others = and_(not_(with_its_cycle), _within(invoice.c.issued_at, start, end))
    issued = select(invoice.c.currency, invoice.c.amount).where(or_(ended, others))
    for currency, amount in tx.connection.execute(issued):
        amounts[currency].append(amount)
    return [
        BilledTotal(currency=currency, invoices=len(each), amount=exact_sum(each))
        for currency, each in sorted(amounts.items())
    ]


def _within(column: ColumnElement[datetime], start: datetime, end: datetime) -> ColumnElement[bool]:
    return and_(column >= start, column < end)
