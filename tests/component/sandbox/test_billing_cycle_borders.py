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
