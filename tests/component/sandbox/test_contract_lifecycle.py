"""Cycles, renewals and ends of contracts. Source: spec, "Resources and their fields", Contract; "Events"."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from billhook.sandbox.billing.contracts.cycles import ContractRecord, cycle_at, next_end_date
from support.sandbox import Running, running
from support.scenarios import STARTED, billed_cycles, contract, customer, cycle, dates, fee, invoices


def kept(
    start: str, *, end: str | None = None, months: int = 1, days: int = 0, **more: Any
) -> ContractRecord:
    """A contract as it is stored, for what is reckoned from it alone."""
    ends = {} if end is None else {"endDate": end, "firstEndDate": end}
    body = {"customerId": "cus_1", "name": "Deal", "startDate": start, "cycleMonths": months}
    stored = {"id": "con_1", "createdAt": STARTED, "updatedAt": STARTED, "cycleDays": days}
    return ContractRecord.from_wire({**body, **stored, **ends, **more})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def cycles(sandbox: Running) -> list[tuple[str, str]]:
    """The days on which each cycle that was billed began and ended."""
    return [(begin[:10], end[:10]) for begin, end in billed_cycles(sandbox)]


# --- cycles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "moment", "begin", "end"),
    [
        ("2026-01-31", "2026-02-27T23:59", "2026-01-31", "2026-02-28"),
        ("2026-01-31", "2026-02-28", "2026-02-28", "2026-03-31"),
        ("2026-01-31", "2026-03-31", "2026-03-31", "2026-04-30"),
        ("2028-01-31", "2028-02-29", "2028-02-29", "2028-03-31"),
        ("2026-01-10T12:00", "2026-02-10T11:59", "2026-01-10T12:00", "2026-02-10T12:00"),
        ("2026-01-10T12:00", "2026-02-10T12:00", "2026-02-10T12:00", "2026-03-10T12:00"),
        ("2026-05-01", "2026-01-10", "2026-05-01", "2026-06-01"),
        ("1999-12-31", "2026-06-30", "2026-06-30", "2026-07-31"),
    ],
)
def test_cycles_are_counted_from_the_start_and_come_back_to_the_31st(
    start: str, moment: str, begin: str, end: str
) -> None:
    assert cycle_at(kept(start), at(moment)) == (at(begin), at(end))


def test_a_moment_of_every_cycle_is_in_the_cycle_that_it_begins() -> None:
    contract = kept("2027-10-31T23:30", months=3)

    begin, end = cycle_at(contract, contract.start_date)
    for _ in range(60):
        assert cycle_at(contract, begin) == (begin, end)
        begin, last = cycle_at(contract, end)
        assert begin == end
        end = last


@pytest.mark.parametrize(
    ("unit", "value", "ends"),
    [
        ("Days", 10, ["2026-01-20", "2026-01-30", "2026-02-09"]),
        ("Weeks", 2, ["2026-01-24", "2026-02-07", "2026-02-21"]),
        ("Months", 2, ["2026-03-10", "2026-05-10", "2026-07-10"]),
        ("Years", 1, ["2027-01-10", "2028-01-10", "2029-01-10"]),
    ],
)
def test_a_cycle_is_as_long_as_the_products_say(unit: str, value: int, ends: list[str]) -> None:
    """Source: spec, "Resources and their fields", ContractProduct, scheduling."""
    with running() as sandbox:
        products = [fee(1), fee(1, scheduling=cycle(unit, value)), fee(1, scheduling=cycle(unit, value))]
        contract(sandbox, products=products)
        sandbox.ok("POST", "/_sandbox/clock", {"to": f"{ends[-1]}T12:00:00Z"})
        sandbox.token = ""
        billed = [end for _, end in cycles(sandbox)]

    assert billed == ends


@pytest.mark.parametrize(("interval", "months"), [("Monthly", 1), ("Quarterly", 3), ("Yearly", 12)])
def test_a_cycle_is_as_long_as_the_plans_interval(interval: str, months: int) -> None:
    """Source: spec, "Resources and their fields", Plan, billingData."""
    with running() as sandbox:
        plan = {"name": "Growth", "billingData": {"billingInterval": interval}, "products": [fee(1)]}
        plan_id = sandbox.ok("POST", "/_sandbox/plans", plan)["plan"]["id"]
        contract(sandbox, name=None, planId=plan_id)
        sandbox.advance("P24M")
        billed = len(invoices(sandbox))

    assert billed == 24 // months


def test_a_contract_of_the_31st_is_billed_on_the_last_day_of_shorter_months() -> None:
    with running() as sandbox:
        contract(sandbox, startDate="2026-01-31T00:00:00Z")
        sandbox.advance("P5M")
        billed = [end for _, end in cycles(sandbox)]

    assert billed == ["2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31"]


def test_a_contract_that_is_to_begin_is_billed_after_its_first_cycle() -> None:
    with running() as sandbox:
        contract(sandbox, startDate="2026-03-01T00:00:00Z")
        sandbox.advance("P3M")
        billed = cycles(sandbox)

    assert billed == [("2026-03-01", "2026-04-01")]


def test_cycles_that_were_over_when_a_contract_was_made_are_billed_too() -> None:
    with running() as sandbox:
        contract(sandbox, startDate="2025-06-20T00:00:00Z")
        sandbox.advance("P1M")
        billed = cycles(sandbox)

    months = ["2025-06", "2025-07", "2025-08", "2025-09", "2025-10", "2025-11", "2025-12", "2026-01"]
    assert billed == [(f"{one}-20", f"{other}-20") for one, other in pairwise(months)]


@pytest.mark.parametrize(
    ("unit", "value", "bounds"),
    [
        ("Months", 1, ["2026-01-10", "2026-02-01", "2026-03-01"]),
        ("Months", 3, ["2026-01-10", "2026-04-01", "2026-07-01"]),
        ("Years", 1, ["2026-01-10", "2027-01-01", "2028-01-01"]),
        ("Weeks", 1, ["2026-01-10", "2026-01-12", "2026-01-19"]),
        ("Days", 10, ["2026-01-10", "2026-01-20", "2026-01-30"]),
    ],
)
def test_calendar_aligned_cycles_are_the_calendars(unit: str, value: int, bounds: list[str]) -> None:
    """Source: spec, "Resources and their fields", ContractProduct, isCalendarAligned."""
    with running() as sandbox:
        contract(sandbox, products=[fee(1, scheduling=cycle(unit, value), isCalendarAligned=True)])
        sandbox.ok("POST", "/_sandbox/clock", {"to": f"{bounds[-1]}T00:00:00Z"})
        sandbox.token = ""
        billed = [each["billingCycle"] for each in invoices(sandbox)]

    first, second, third = bounds
    assert billed == [
        {"startTime": f"{first}T12:00:00Z", "endTime": f"{second}T00:00:00Z"},
        {"startTime": f"{second}T00:00:00Z", "endTime": f"{third}T00:00:00Z"},
    ]


def test_a_group_or_a_plan_can_be_calendar_aligned_too() -> None:
    """Source: spec, "Resources and their fields", ProductGroup, isCalendarAligned."""
    with running() as sandbox:
        aligned = fee(1, isCalendarAligned=True)
        plan = sandbox.ok("POST", "/_sandbox/plans", {"name": "Growth", "products": [aligned]})["plan"]
        contract(sandbox, productGroups=[{"isCalendarAligned": True, "products": [fee(1)]}])
        contract(sandbox, name=None, planId=plan["id"])
        sandbox.advance("P1M")
        ends = [each["billingCycle"]["endTime"] for each in invoices(sandbox)]

    assert ends == ["2026-02-01T00:00:00Z", "2026-02-01T00:00:00Z"]


# --- InReview -------------------------------------------------------------------------------------


def test_a_contract_in_review_is_not_billed_before_it_is_activated() -> None:
    """Source: spec, "States and transitions": the contract statuses InReview and Active."""
    with running() as sandbox:
        made = contract(sandbox, status="InReview", products=[fee(1)])
        sandbox.advance("P40D")
        before = cycles(sandbox)
        active = sandbox.ok("POST", f"/_sandbox/contracts/{made['id']}/activate")["contract"]
        sandbox.advance("P30D")
        after = cycles(sandbox)
        created = sandbox.raised("ContractCreated")

    assert before == []
    assert active["status"] == "Active"
    assert active["updatedAt"] == "2026-02-19T12:00:00Z"
    assert after == [("2026-01-10", "2026-02-10"), ("2026-02-10", "2026-03-10")]
    assert len(created) == 1


def test_only_a_contract_in_review_is_activated() -> None:
    with running() as sandbox:
        made = contract(sandbox, externalId="agr-1")
        answer = sandbox.call("POST", "/_sandbox/contracts/agr-1/activate")
        unknown = sandbox.call("POST", "/_sandbox/contracts/con_none/activate")

    assert made["status"] == "Active"
    assert answer.error() == (400, "invalid_request_error", "not_in_review")
    assert unknown.error() == (404, "invalid_request_error", "resource_not_found")


# --- the end, and renewal -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "now", "expected"),
    [
        ("2026-01-10", "2027-01-10", "2027-01-10", "2028-01-10"),
        ("2026-01-31", "2026-02-28", "2026-02-28", "2026-03-31"),
        ("2026-02-01", "2027-01-31", "2027-01-31", "2028-01-31"),
        ("2026-02-01", "2026-02-28", "2026-02-28", "2026-03-31"),
        ("2026-01-10", "2026-01-20", "2026-01-20", "2026-01-30"),
        ("2020-01-10", "2021-01-10", "2026-06-01", "2027-01-10"),
        ("2020-01-10", "2020-01-11", "2026-06-01T12:00", "2026-06-02"),
        ("2024-02-29", "2025-02-28", "2027-02-28", "2028-02-29"),
    ],
)
def test_a_contract_is_renewed_by_its_own_length(start: str, end: str, now: str, expected: str) -> None:
    assert next_end_date(kept(start, end=end), at(now)) == at(expected)


def test_a_contract_that_is_not_renewed_expires_at_its_end() -> None:
    """Source: spec, "Events", ContractExpired; Contract, endDate."""
    with running() as sandbox:
        end = "2026-03-25T12:00:00Z"
        made = contract(sandbox, endDate=end, autoRenewContract=False, isTrial=True, products=[fee(1)])
        sandbox.advance("P1Y")
        kept = sandbox.ok("GET", f"/_sandbox/contracts/{made['id']}")["contract"]
        told = sandbox.raised("ContractExpired")
        renewals = sandbox.raised("UpcomingRenewal")
        billed = cycles(sandbox)

    assert kept["status"] == "Expired"
    assert kept["endDate"] == end
    assert [body for _, body in told] == [
        {
            "date": end,
            "contractEndDate": end,
            "contractName": "Deal",
            "contractId": made["id"],
            "customerName": "Acme",
            "isTrial": True,
        }
    ]
    assert renewals == []
    assert billed == [
        ("2026-01-10", "2026-02-10"), ("2026-02-10", "2026-03-10"), ("2026-03-10", "2026-03-25"),
    ]  # fmt: skip


def test_the_last_cycle_is_billed_once_where_it_ends_with_the_contract() -> None:
    with running() as sandbox:
        contract(sandbox, endDate="2026-03-10T12:00:00Z", autoRenewContract=False)
        sandbox.advance("P1Y")
        billed = cycles(sandbox)
        expired = dates(sandbox, "ContractExpired")

    assert billed == [("2026-01-10", "2026-02-10"), ("2026-02-10", "2026-03-10")]
    assert expired == ["2026-03-10T12:00:00Z"]


def test_a_contract_without_auto_renew_is_renewed_repeatedly() -> None:
    """Source: spec, Contract, autoRenewContract: treated as true when omitted."""
    with running() as sandbox:
        made = contract(sandbox, endDate="2026-07-10T12:00:00Z")
        sandbox.advance("P19M")
        kept = sandbox.ok("GET", f"/_sandbox/contracts/{made['id']}")["contract"]
        expired = sandbox.raised("ContractExpired")
        billed = cycles(sandbox)

    assert kept["endDate"] == "2028-01-10T12:00:00Z"
    assert kept["status"] == "Active"
    assert expired == []
    assert len(billed) == 19


def test_upcoming_renewal_is_raised_thirty_days_before_each_end() -> None:
    """Source: spec, "Events", UpcomingRenewal."""
    with running() as sandbox:
        made = contract(sandbox, endDate="2026-07-10T12:00:00Z")
        sandbox.advance("P1Y")
        told = [body for _, body in sandbox.raised("UpcomingRenewal")]

    assert told[0] == {
        "date": "2026-06-10T12:00:00Z",
        "contractEndDate": "2026-07-10T12:00:00Z",
        "contractName": "Deal",
        "contractId": made["id"],
        "customerName": "Acme",
        "isTrial": False,
    }
    assert [(body["date"], body["contractEndDate"]) for body in told[1:]] == [
        ("2026-12-11T12:00:00Z", "2027-01-10T12:00:00Z")
    ]


def test_a_renewal_within_thirty_days_is_raised_at_once() -> None:
    with running() as sandbox:
        contract(sandbox, endDate="2026-01-24T12:00:00Z")
        sandbox.advance("PT0S")
        told = dates(sandbox, "UpcomingRenewal")

    assert told == [STARTED]


def test_a_contract_that_ended_before_it_was_made_is_renewed_into_the_present_or_expires() -> None:
    with running() as sandbox:
        past = {"startDate": "2024-03-01T00:00:00Z", "endDate": "2025-03-01T00:00:00Z"}
        renewed = contract(sandbox, **past)["id"]
        over = contract(sandbox, **past, autoRenewContract=False)["id"]
        sandbox.advance("P2M")
        ends = sandbox.ok("GET", f"/_sandbox/contracts/{renewed}")["contract"]["endDate"]
        status = sandbox.ok("GET", f"/_sandbox/contracts/{over}")["contract"]["status"]
        billed = {each["contractId"] for each in invoices(sandbox)}

    assert ends == "2027-03-01T00:00:00Z"
    assert status == "Expired"
    assert billed == {renewed, over}


def test_a_customer_with_a_contract_raises_no_new_customer_without_contract() -> None:
    """Source: spec, "Events", NewCustomerWithoutContract."""
    with running() as sandbox:
        with_one, without = customer(sandbox), customer(sandbox, name="Other")
        contract(sandbox, with_one, status="InReview")
        sandbox.advance("P8D")
        told = [body for _, body in sandbox.raised("NewCustomerWithoutContract")]

    assert told == [{"date": "2026-01-17T12:00:00Z", "customerId": without, "customerName": "Other"}]
