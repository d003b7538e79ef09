"""Customers that are Inactive: neither metered nor billed. What that means the specification does not say."""

from __future__ import annotations

from support.sandbox import Running
from support.scenarios import Customer, invoices, metered

TIERS = [{"upTo": 9, "price": 1}, {"upTo": None, "price": 1}]
ANNOUNCED = {"TierCrossed", "CommitmentCrossed", "CommitmentUsageCrossed"}


def test_events_of_an_inactive_customer_are_stored_and_not_metered(sandbox: Running) -> None:
    pricing = {"type": "Tiered", "tiers": TIERS}
    product = {"catalogProductId": metered(sandbox), "pricing": pricing}
    acme = Customer.of(sandbox)
    acme.buy({**product, "commitment": {"units": 10, "price": 1}})
    event = {"name": "call", "timestamp": "2026-01-09T00:00:00Z", "customerAlias": "acme", "ref": "r"}
    batch = {"events": [{**event, "data": {"units": 4}}]}
    found = []
    for status in ("Inactive", "Active"):
        sandbox.ok("PUT", f"/customers/{acme.id}", {"status": status})
        [told] = sandbox.ok("POST", "/events/dry-run", batch)["events"]
        acme.use(25)
        used = [each["consumedAmount"] for each in acme.consumptions()]
        announced = {kind for kind, _ in sandbox.raised()} & ANNOUNCED
        found.append((told["matchedCustomer"], told["meterWithValues"][0]["value"], used, announced))
    kept = sandbox.ok("GET", "/events?startTime=2026-01-01&endTime=2026-02-01")["total"]
    sandbox.advance("P30D")

    assert found == [(acme.id, None, [0], set()), (acme.id, 4, [25], ANNOUNCED)]
    assert kept == 2
    assert [each["amount"] for each in invoices(sandbox)] == [16]
    assert len(sandbox.raised("UnchargedEvents")) == 1
