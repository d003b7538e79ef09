"""The day of the month on which cycles begin.

Source: spec, "Resources and their fields", ContractProduct, scheduling.billingDay: an integer, 1 or greater;
Plan, billingData.billingDate.dayOfMonth. What they do is not shown.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import datetime, time
from itertools import pairwise
from typing import Any

import pytest

from support.sandbox import Running
from support.scenarios import STARTED, Customer, billed_cycles, contract, cycle, fee, invoices, metered

DAYS = (1, 15, 28, 29, 30, 31)
MONTHS = (1, 2, 3, 12)
STARTS = (
    STARTED,
    "2026-01-31T23:59:59Z",
    "2026-02-28T00:00:00Z",
    "2026-02-28T12:00:00Z",
    "2026-03-30T08:00:00Z",
)


def on(day: int, **more: Any) -> dict[str, Any]:
    """A fee with this billing day."""
    return fee(1, scheduling={"billingDay": day, **more})


def borders(sandbox: Running) -> list[str]:
    """Where the first cycle began, and the day on which each one ended."""
    found = billed_cycles(sandbox)
    return [found[0][0], *(end.removesuffix("T00:00:00Z") for _, end in found)]


def test_cycles_begin_at_midnight_on_the_first_billing_day_that_a_product_has(sandbox: Running) -> None:
    contract(sandbox, products=[fee(1), on(15), on(20)])
    sandbox.advance("P3M")
    billed = billed_cycles(sandbox)

    assert billed == [
        (STARTED, "2026-01-15T00:00:00Z"),
        ("2026-01-15T00:00:00Z", "2026-02-15T00:00:00Z"),
        ("2026-02-15T00:00:00Z", "2026-03-15T00:00:00Z"),
    ]


def test_a_billing_day_falls_on_the_last_day_of_a_shorter_month(sandbox: Running) -> None:
    for day in (29, 30, 31):
        contract(sandbox, products=[on(day)])
    sandbox.advance("P5M")
    ends = [end[:10] for _, end in billed_cycles(sandbox)]

    assert ends == [
        "2026-01-29", "2026-01-30", "2026-01-31", "2026-02-28", "2026-02-28", "2026-02-28",
        "2026-03-29", "2026-03-30", "2026-03-31", "2026-04-29", "2026-04-30", "2026-04-30",
        "2026-05-29", "2026-05-30", "2026-05-31",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "value", "ends"),
    [("Months", 3, ["2026-03-15", "2026-06-15"]), ("Years", 1, ["2026-12-15", "2027-12-15"])],
)
def test_a_longer_period_began_on_the_last_billing_day_before_the_start(
    sandbox: Running, unit: str, value: int, ends: list[str]
) -> None:
    """A choice of ours: the specification does not say from which month longer periods are counted."""
    contract(sandbox, products=[on(15, **cycle(unit, value))])
    sandbox.ok("POST", "/_sandbox/clock", {"to": f"{ends[-1]}T00:00:00Z"})
    sandbox.token = ""
    billed = borders(sandbox)

    assert billed == [STARTED, *ends]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "end"), [("Days", "2026-01-11T12:00:00Z"), ("Weeks", "2026-01-17T12:00:00Z")]
)
def test_a_billing_day_does_nothing_to_cycles_of_days_and_weeks(
    sandbox: Running, unit: str, end: str
) -> None:
    contract(sandbox, products=[on(15, **cycle(unit, 1))])
    sandbox.advance("P8D")
    first, *_ = billed_cycles(sandbox)

    assert first == (STARTED, end)


@pytest.mark.slow
def test_the_calendar_goes_before_a_billing_day(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", ContractProduct, isCalendarAligned."""
    contract(sandbox, products=[on(15), fee(1, isCalendarAligned=True)])
    sandbox.advance("P2M")
    billed = borders(sandbox)

    assert billed == [STARTED, "2026-02-01", "2026-03-01"]


@pytest.mark.slow
def test_a_plan_has_its_day_of_month_unless_a_product_of_it_has_a_billing_day(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Plan, billingData.billingDate."""
    billing = {"billingDate": {"anchor": "StartOfMonth", "dayOfMonth": 31}}
    for products in ([fee(1)], [fee(1), on(20)]):
        plan = {"name": "Growth", "billingData": billing, "products": products}
        plan_id = sandbox.ok("POST", "/_sandbox/plans", plan)["plan"]["id"]
        contract(sandbox, name=None, planId=plan_id)
    sandbox.advance("P2M")
    ends = [end[:10] for _, end in billed_cycles(sandbox)]

    assert ends == ["2026-01-20", "2026-01-31", "2026-02-20", "2026-02-28"]


@pytest.mark.slow
def test_usage_counts_to_the_cycle_of_its_billing_day(sandbox: Running) -> None:
    acme, calls = Customer.of(sandbox), metered(sandbox)
    sold = {"catalogProductId": calls, "pricing": {"type": "PerUnit", "price": 1}}
    acme.buy({**sold, "scheduling": {"billingDay": 31}})
    acme.use(1, at="2026-01-30T23:59:59Z")
    acme.use(2, at="2026-01-31T00:00:00Z")
    acme.use(4, at="2026-02-27T23:59:59Z")
    acme.use(8, at="2026-02-28T00:00:00Z")
    sandbox.advance("P3M")
    billed = [each["amount"] for each in invoices(sandbox)]

    assert billed == [1, 6, 8]


@pytest.mark.slow
def test_a_recurring_discount_counts_the_short_first_cycle(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", pricing, discount, recurring."""
    discount = {"type": "Percentage", "amount": 10, "recurring": 2}
    pricing = {"type": "Flat", "price": 100, "discount": discount}
    contract(sandbox, products=[{"pricing": pricing, "scheduling": {"billingDay": 31}}])
    sandbox.advance("P4M")
    billed = [each["amount"] for each in invoices(sandbox)]

    assert billed == [90, 90, 100, 100]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("renewed", "ends"),
    [
        (True, ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30"]),
        (False, ["2026-01-31", "2026-02-28", "2026-03-10T12:00:00Z"]),
    ],
)
def test_a_terms_end_cuts_the_last_cycle_only_without_renewal(
    sandbox: Running, renewed: bool, ends: list[str]
) -> None:
    """Source: spec, "Resources and their fields", Contract, endDate and autoRenewContract."""
    made = contract(sandbox, endDate="2026-03-10T12:00:00Z", autoRenewContract=renewed, products=[on(31)])
    sandbox.advance("P4M")
    billed = borders(sandbox)
    end = sandbox.ok("GET", f"/_sandbox/contracts/{made['id']}")["contract"]["endDate"]

    assert billed == [STARTED, *ends]
    assert end == ("2026-07-10T12:00:00Z" if renewed else "2026-03-10T12:00:00Z")


@pytest.mark.slow
def test_the_cycles_of_three_years_have_no_gap_or_overlap_for_any_day(sandbox: Running) -> None:
    owner = Customer.of(sandbox).id
    days = {}
    for number, day in enumerate(DAYS):
        for months, start in zip(MONTHS, STARTS[number % 2 :], strict=False):
            products = [on(day, **cycle("Months", months))]
            made = contract(sandbox, owner, startDate=start, products=products)
            days[made["id"]] = (day, months, start)
    sandbox.advance("P3Y3M")
    found: dict[str, list[tuple[str, str]]] = {each: [] for each in days}
    for invoice in invoices(sandbox):
        billed = invoice["billingCycle"]
        found[invoice["contractId"]].append((billed["startTime"], billed["endTime"]))

    for contract_id, (day, months, start) in days.items():
        begins = [begin for begin, _ in found[contract_id]]
        ends = [datetime.fromisoformat(end) for _, end in found[contract_id]]
        assert len(ends) >= 36 // months
        assert begins[0] == start
        assert begins[1:] == [end for _, end in found[contract_id][:-1]]
        assert [end.day for end in ends] == [min(day, monthrange(end.year, end.month)[1]) for end in ends]
        assert {end.time() for end in ends} == {time()}
        assert {(b.year - a.year) * 12 + b.month - a.month for a, b in pairwise(ends)} == {months}
