"""Series for charts: usage by day, invoices by month, the course of a credit pool's balance."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from billhook.sandbox.billing.chart_series import days_up_to, invoices_by_month, usage_by_day
from billhook.sandbox.billing.meters import METERS
from support.sandbox import Running
from support.scenarios import Customer, contract, fee, metered

DAYS = days_up_to(date(2026, 1, 12), 4)


def usage(sandbox: Running, customer_id: str | None = None) -> dict[str, list[int]]:
    """Each meter's numbers of DAYS."""
    with sandbox.sandbox.service.transaction(writes=False) as tx:
        found = usage_by_day(tx, METERS.all(tx), DAYS, customer_id)
    return {one.meter.name: [int(value) for value in one.values] for one in found}


def test_usage_is_counted_by_day_for_one_customer_and_for_all(sandbox: Running) -> None:
    metered(sandbox)
    acme, other = Customer.of(sandbox), Customer.of(sandbox, "other")
    acme.use(1, 2, at="2026-01-09T00:00:00Z")
    acme.use(4, at="2026-01-11T23:59:59Z")
    acme.use(100, at="2026-01-08T23:59:59Z")
    other.use(8, at="2026-01-11T05:00:00Z")
    of_all, of_one = usage(sandbox), usage(sandbox, acme.id)

    assert [day.day for day in DAYS] == [9, 10, 11, 12]
    assert of_all == {"call": [3, 0, 12, 0]}
    assert of_one == {"call": [3, 0, 4, 0]}


def test_invoices_are_added_up_by_month_and_status_in_dollars(sandbox: Running) -> None:
    contract(sandbox, products=[fee(10)])
    euro = contract(sandbox, currency="EUR", products=[fee(100)])
    sandbox.advance("P2M")
    with sandbox.sandbox.service.transaction(writes=False) as tx:
        of_all = invoices_by_month(tx, 3)
        of_one = invoices_by_month(tx, 3, euro["customerId"])
        short = invoices_by_month(tx, 1)

    assert [one.month for one in of_all] == [datetime(2026, month, 1, tzinfo=UTC) for month in (1, 2, 3)]
    # A euro is 1.10 dollars at first. The cycles that began in January and in February have ended.
    assert [(one.count, one.total) for one in of_all] == [
        (0, Decimal("0.00")),
        (2, Decimal("120.00")),
        (2, Decimal("120.00")),
    ]
    assert [one.total for one in of_one] == [Decimal("0.00"), Decimal("110.00"), Decimal("110.00")]
    assert {status for one in of_all for status in one.amounts} == {"None", "PendingPayment"}
    assert short == of_all[-1:]
