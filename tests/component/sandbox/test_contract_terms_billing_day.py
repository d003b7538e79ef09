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
from support.scenarios import STARTED, Customer, billed_cycles, contract, cycle, fee, invoices

DAYS = (1, 15, 28, 29, 30, 31, 1000)
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
