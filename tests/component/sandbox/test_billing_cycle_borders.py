"""Usage at the borders of days, cycles and contracts, and what three cycles come to when reckoned by hand."""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import Running
from support.scenarios import Customer, dates, invoices, metered

TIERS = [{"upTo": 100, "price": 1}, {"upTo": 200, "price": 0.5}, {"upTo": None, "price": 0.1}]
ANNOUNCED = ["CommitmentUsageCrossed", "TierCrossed", "CommitmentCrossed"]
WATCHED = {
    "pricing": {"type": "Tiered", "tiers": [{"upTo": 9, "price": 1}, {"upTo": None, "price": 1}]},
    "commitment": {"units": 10, "price": 1},
}


def announced(sandbox: Any) -> list[str]:
    """The types of what was told of usage, in its order."""
    return [event_type for event_type, _ in sandbox.raised() if event_type in ANNOUNCED]


def test_three_cycles_with_tiers_discount_commitment_and_credits_are_billed_correctly(
    sandbox: Running,
) -> None:
    """Source: spec, "Resources and their fields", ContractProduct, CreditGrant and Invoice.

    50 units are committed for 40.00; 10 % are taken off twice; 30.00 of credits are there once.
    First cycle, 31 January to 27 February, 150.5 units: 100 + 25.25 = 125.25, of which the first 50 are
    included, so 40 + 75.25 = 115.25, less 11.525, less 30. Second, to 30 March, 310 units: 100 + 50 + 11 less
    50, so 40 + 111 = 151, less 15.10. Third: nothing but the commitment, and no discount.
    """
    acme, calls = Customer.of(sandbox), metered(sandbox)
    sold = {
        "catalogProductId": calls,
        "pricing": {
            "type": "Tiered",
            "tiers": TIERS,
            "discount": {"type": "Percentage", "amount": 10, "recurring": 2},
        },
        "commitment": {"units": 50, "price": 40},
        "consumesCreditProductIds": ["crp-start"],
    }
    grant = {"creditProductId": "crp-start", "balanceKind": "Monetary", "grantAmount": 30}
    acme.buy(sold, startDate="2026-01-31T00:00:00Z", creditGrants=[{**grant, "schedule": "Once"}])
    acme.use(1000, at="2026-01-30T23:59:59.999999Z")  # before it
    acme.use(120, at="2026-01-31T00:00:00Z")
    acme.use(30, at="2026-02-27T23:59:59.999999Z")
    acme.use(0.5, at="2026-02-28T01:30:00+02:00")  # still the 27th in UTC
    acme.use(10, at="2026-02-28T00:00:00Z")
    acme.use(300, at="2026-03-30T23:59:59.999999Z")
    sandbox.advance("P120D")
    billed = invoices(sandbox)
    drawn = acme.changes()

    names = ("subtotal", "overage", "discount", "creditsUsed", "tax", "total")
    assert [each["billingCycle"]["startTime"][:10] for each in billed] == [
        "2026-01-31",
        "2026-02-28",
        "2026-03-31",
    ]
    assert [[each["revenueBreakdown"][name] for name in names] for each in billed] == [
        [115.25, 75.25, 11.52, 30.0, 0.0, 73.73],
        [151.0, 111.0, 15.1, 0.0, 0.0, 135.9],
        [40.0, 0.0, 0.0, 0.0, 0.0, 40.0],
    ]
    assert [each["amount"] for each in billed] == [73.73, 135.9, 40.0]
    assert drawn == [("Grant", 30, 30), ("Usage", -30, 0)]


@pytest.mark.slow
def test_a_day_on_which_one_contract_follows_another_is_billed_once(sandbox: Running) -> None:
    """To the one that was in force at that moment."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    sold = {"catalogProductId": calls, "pricing": {"type": "PerUnit", "price": 1}}
    acme.buy(sold, endDate="2026-01-20T12:00:00Z", autoRenewContract=False)
    acme.buy(sold, startDate="2026-01-20T12:00:00Z")
    acme.use(1, at="2026-01-19T12:00:00Z")
    acme.use(2, at="2026-01-20T09:00:00Z")
    acme.use(4, at="2026-01-20T12:00:00Z")
    sandbox.advance("P50D")
    billed = [each["amount"] for each in invoices(sandbox)]

    assert billed == [3, 4]


@pytest.mark.slow
def test_a_term_that_ends_with_the_last_second_of_a_day_is_renewed_to_one(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Contract, endDate and autoRenewContract."""
    acme = Customer.of(sandbox)
    acme.buy(endDate="2026-02-28T23:59:59Z", startDate="2025-03-01T00:00:00Z")
    ends = []
    for _ in range(3):
        sandbox.advance("P1Y")
        ends.append(sandbox.ok("GET", "/contracts")["contracts"][0]["endDate"])

    assert ends == ["2027-02-28T23:59:59Z", "2028-02-29T23:59:59Z", "2029-02-28T23:59:59Z"]


@pytest.mark.slow
def test_usage_before_its_cycle_raises_events_once_at_the_cycles_start(sandbox: Running) -> None:
    """Source: spec, "Events", TierCrossed, CommitmentCrossed and CommitmentUsageCrossed."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    acme.buy({"catalogProductId": calls, **WATCHED})
    acme.use(25, at="2026-02-03T10:00:00Z")
    before = announced(sandbox)
    sandbox.advance("P21DT12H")
    told = announced(sandbox)
    when = dates(sandbox, "TierCrossed")
    acme.use(5, at="2026-02-04T10:00:00Z")
    sandbox.advance("P20D")
    later = announced(sandbox)

    assert before == []
    assert sorted(told) == sorted(ANNOUNCED)
    assert when == ["2026-02-01T00:00:00Z"]
    assert later == told


@pytest.mark.slow
def test_usage_before_a_contracts_start_on_the_same_day_raises_events(sandbox: Running) -> None:
    """What came before the clock had got there."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    contract_id = acme.buy({"catalogProductId": calls, **WATCHED}, startDate="2026-01-20T12:00:00Z")
    deleted = acme.buy({"catalogProductId": calls, **WATCHED}, startDate="2026-01-20T12:00:00Z")
    acme.use(25, at="2026-01-20T13:00:00Z")
    before = announced(sandbox)
    sandbox.ok("DELETE", f"/contracts/{deleted}")
    sandbox.advance("P30D")
    told = announced(sandbox)
    ((_, crossed),) = sandbox.raised("TierCrossed")

    assert before == []
    assert sorted(told) == sorted(ANNOUNCED)
    assert (crossed["contractId"], crossed["date"]) == (contract_id, "2026-01-20T12:00:00Z")


@pytest.mark.slow
def test_late_usage_of_a_closed_cycle_is_billed_by_the_next_without_events(sandbox: Running) -> None:
    """The specification does not say what becomes of it: what was approved stays as it is."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    acme.buy({"catalogProductId": calls, **WATCHED})
    sandbox.advance("P30D")
    acme.use(25, at="2026-01-20T10:00:00Z")
    sandbox.advance("P60D")
    stored = sandbox.ok("GET", "/events?startTime=2026-01-01&endTime=2026-02-01")["total"]
    billed = [each["amount"] for each in invoices(sandbox)]
    told = announced(sandbox)

    assert (stored, billed, told) == (1, [1, 16, 1], [])
