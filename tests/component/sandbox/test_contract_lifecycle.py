"""Cycles, renewals and ends of contracts. Source: spec, "Resources and their fields", Contract; "Events"."""

from __future__ import annotations

from typing import Any

from billhook.sandbox.billing.cycles import ContractRecord
from support.sandbox import Running
from support.scenarios import STARTED, billed_cycles, contract, customer, fee


def kept(
    start: str, *, end: str | None = None, months: int = 1, days: int = 0, **more: Any
) -> ContractRecord:
    """A contract as it is stored, for what is reckoned from it alone."""
    ends = {} if end is None else {"endDate": end, "firstEndDate": end}
    body = {"customerId": "cus_1", "name": "Deal", "startDate": start, "cycleMonths": months}
    stored = {"id": "con_1", "createdAt": STARTED, "updatedAt": STARTED, "cycleDays": days}
    return ContractRecord.from_wire({**body, **stored, **ends, **more})


def cycles(sandbox: Running) -> list[tuple[str, str]]:
    """The days on which each cycle that was billed began and ended."""
    return [(begin[:10], end[:10]) for begin, end in billed_cycles(sandbox)]


def test_a_contract_that_is_not_renewed_expires_at_its_end(sandbox: Running) -> None:
    """Source: spec, "Events", ContractExpired; Contract, endDate."""
    end = "2026-03-25T12:00:00Z"
    made = contract(sandbox, endDate=end, autoRenewContract=False, isTrial=True, products=[fee(1)])
    sandbox.advance("P1Y")
    kept = sandbox.ok("GET", f"/contracts/{made['id']}")["contract"]
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


def test_a_customer_with_a_contract_raises_no_new_customer_without_contract(sandbox: Running) -> None:
    """Source: spec, "Events", NewCustomerWithoutContract."""
    with_one, without = customer(sandbox), customer(sandbox, name="Other")
    contract(sandbox, with_one, status="InReview")
    sandbox.advance("P8D")
    told = [body for _, body in sandbox.raised("NewCustomerWithoutContract")]

    assert told == [{"date": "2026-01-17T12:00:00Z", "customerId": without, "customerName": "Other"}]
