"""Cycles, renewals and ends of contracts. Source: spec, "Resources and their fields", Contract; "Events"."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from billhook.sandbox.billing.cycles import ContractRecord, cycle_at, next_end_date
from support.sandbox import NOT_FOUND, Running
from support.scenarios import STARTED, billed_cycles, contract, customer, cycle, fee, invoices


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


def ends_of(sandbox: Running, contracts: list[str]) -> list[list[str]]:
    """The days on which the billed cycles of each of these contracts ended."""
    billed = [(each["contractId"], each["billingCycle"]["endTime"][:10]) for each in invoices(sandbox)]
    return [[end for owner, end in billed if owner == each] for each in contracts]


# --- cycles ---------------------------------------------------------------------------------------


CYCLES = [
    ("2026-01-31", "2026-02-27T23:59", "2026-01-31", "2026-02-28"),
    ("2026-01-31", "2026-02-28", "2026-02-28", "2026-03-31"),
    ("2026-01-31", "2026-03-31", "2026-03-31", "2026-04-30"),
    ("2028-01-31", "2028-02-29", "2028-02-29", "2028-03-31"),
    ("2026-01-10T12:00", "2026-02-10T11:59", "2026-01-10T12:00", "2026-02-10T12:00"),
    ("2026-01-10T12:00", "2026-02-10T12:00", "2026-02-10T12:00", "2026-03-10T12:00"),
    ("2026-05-01", "2026-01-10", "2026-05-01", "2026-06-01"),
    ("1999-12-31", "2026-06-30", "2026-06-30", "2026-07-31"),
]


def test_cycles_are_counted_from_the_start_and_come_back_to_the_31st() -> None:
    found = [cycle_at(kept(start), at(moment)) for start, moment, _, _ in CYCLES]

    assert found == [(at(begin), at(end)) for _, _, begin, end in CYCLES]


def test_a_moment_of_every_cycle_is_in_the_cycle_that_it_begins() -> None:
    contract = kept("2027-10-31T23:30", months=3)

    begin, end = cycle_at(contract, contract.start_date)
    for _ in range(60):
        assert cycle_at(contract, begin) == (begin, end)
        begin, last = cycle_at(contract, end)
        assert begin == end
        end = last


LENGTHS: list[tuple[str, int, list[str]]] = [
    ("Days", 10, ["2026-01-20", "2026-01-30", "2026-02-09"]),
    ("Weeks", 2, ["2026-01-24", "2026-02-07", "2026-02-21"]),
    ("Months", 2, ["2026-03-10", "2026-05-10", "2026-07-10"]),
    ("Years", 1, ["2027-01-10", "2028-01-10", "2029-01-10"]),
]


@pytest.mark.slow
def test_a_cycle_is_as_long_as_the_products_say(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", ContractProduct, scheduling."""
    made = []
    for unit, value, _ in LENGTHS:
        products = [fee(1), fee(1, scheduling=cycle(unit, value)), fee(1, scheduling=cycle(unit, value))]
        made.append(contract(sandbox, products=products)["id"])
    sandbox.advance("P3Y")
    ends = ends_of(sandbox, made)

    assert [each[:3] for each in ends] == [ends for *_, ends in LENGTHS]


ALIGNED: list[tuple[str, int, list[str]]] = [
    ("Months", 1, ["2026-01-10", "2026-02-01", "2026-03-01"]),
    ("Months", 3, ["2026-01-10", "2026-04-01", "2026-07-01"]),
    ("Years", 1, ["2026-01-10", "2027-01-01", "2028-01-01"]),
    ("Weeks", 1, ["2026-01-10", "2026-01-12", "2026-01-19"]),
    ("Days", 10, ["2026-01-10", "2026-01-20", "2026-01-30"]),
]


@pytest.mark.slow
def test_calendar_aligned_cycles_are_the_calendars(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", ContractProduct, isCalendarAligned."""
    made = [
        contract(sandbox, products=[fee(1, scheduling=cycle(unit, value), isCalendarAligned=True)])["id"]
        for unit, value, _ in ALIGNED
    ]
    sandbox.advance("P2Y")
    billed = invoices(sandbox)

    for contract_id, (_, _, bounds) in zip(made, ALIGNED, strict=True):
        first, second = [each["billingCycle"] for each in billed if each["contractId"] == contract_id][:2]
        assert first == {"startTime": f"{bounds[0]}T12:00:00Z", "endTime": f"{bounds[1]}T00:00:00Z"}
        assert second == {"startTime": f"{bounds[1]}T00:00:00Z", "endTime": f"{bounds[2]}T00:00:00Z"}


# --- InReview -------------------------------------------------------------------------------------


def test_a_contract_in_review_is_not_billed_before_it_is_activated(sandbox: Running) -> None:
    """Source: spec, "States and transitions": the contract statuses InReview and Active."""
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


def test_only_a_contract_in_review_is_activated(sandbox: Running) -> None:
    made = contract(sandbox, externalId="agr-1")
    answer = sandbox.call("POST", "/_sandbox/contracts/agr-1/activate")
    unknown = sandbox.call("POST", "/_sandbox/contracts/con_none/activate")

    assert made["status"] == "Active"
    assert answer.error() == (400, "invalid_request_error", "not_in_review")
    assert unknown.error() == NOT_FOUND


# --- the end, and renewal -------------------------------------------------------------------------


RENEWALS = [
    ("2026-01-10", "2027-01-10", "2027-01-10", "2028-01-10"),
    ("2026-01-31", "2026-02-28", "2026-02-28", "2026-03-31"),
    ("2026-02-01", "2027-01-31", "2027-01-31", "2028-01-31"),
    ("2026-02-01", "2026-02-28", "2026-02-28", "2026-03-31"),
    ("2026-01-10", "2026-01-20", "2026-01-20", "2026-01-30"),
    ("2020-01-10", "2021-01-10", "2026-06-01", "2027-01-10"),
    ("2020-01-10", "2020-01-11", "2026-06-01T12:00", "2026-06-02"),
    ("2024-02-29", "2025-02-28", "2027-02-28", "2028-02-29"),
    ("2025-03-01", "2026-02-28T23:59:59", "2027-06-01", "2028-02-29T23:59:59"),
]


def test_a_contract_is_renewed_by_its_own_length() -> None:
    found = [next_end_date(kept(start, end=end), at(now)) for start, end, now, _ in RENEWALS]

    assert found == [at(expected) for *_, expected in RENEWALS]


def test_a_contract_that_is_not_renewed_expires_at_its_end(sandbox: Running) -> None:
    """Source: spec, "Events", ContractExpired; Contract, endDate."""
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


def test_upcoming_renewal_is_raised_thirty_days_before_each_end(sandbox: Running) -> None:
    """Source: spec, "Events", UpcomingRenewal."""
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


def test_a_customer_with_a_contract_raises_no_new_customer_without_contract(sandbox: Running) -> None:
    """Source: spec, "Events", NewCustomerWithoutContract."""
    with_one, without = customer(sandbox), customer(sandbox, name="Other")
    contract(sandbox, with_one, status="InReview")
    sandbox.advance("P8D")
    told = [body for _, body in sandbox.raised("NewCustomerWithoutContract")]

    assert told == [{"date": "2026-01-17T12:00:00Z", "customerId": without, "customerName": "Other"}]
