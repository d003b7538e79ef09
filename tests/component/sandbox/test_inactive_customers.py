"""Customers that are Inactive: neither metered nor billed. What that means the specification does not say."""

from __future__ import annotations

from typing import Any

from support.sandbox import Running
from support.scenarios import Customer, invoices, metered

TIERS = [{"upTo": 9, "price": 1}, {"upTo": None, "price": 1}]
ANNOUNCED = {"TierCrossed", "CommitmentCrossed", "CommitmentUsageCrossed", "Overage"}


def sold(sandbox: Running) -> dict[str, Any]:
    pricing = {"type": "Tiered", "tiers": TIERS}
    return {"catalogProductId": metered(sandbox), "pricing": pricing, "commitment": {"units": 10, "price": 1}}


def set_status(customer: Customer, status: str | None) -> None:
    customer.sandbox.ok("PUT", f"/customers/{customer.id}", {"status": status})


def announced(sandbox: Running) -> list[str]:
    return [kind for kind, _ in sandbox.raised() if kind in ANNOUNCED]


def test_events_of_an_inactive_customer_are_stored_and_not_metered(sandbox: Running) -> None:
    acme, busy = Customer.of(sandbox), Customer.of(sandbox, "busy")
    product = sold(sandbox)
    acme.buy(product)
    busy.buy(product)
    set_status(acme, "Inactive")
    acme.use(25)
    told = announced(sandbox)
    busy.use(25)
    kept = sandbox.ok("GET", "/events?startTime=2026-01-01&endTime=2026-02-01")["total"]
    sandbox.advance("P30D")
    uncharged = sandbox.raised("UnchargedEvents")

    assert kept == 2
    assert [each["consumedAmount"] for each in acme.consumptions()] == [0]
    assert told == []
    assert set(announced(sandbox)) == ANNOUNCED
    assert [(each["customerId"], each["amount"]) for each in invoices(sandbox)] == [(busy.id, 16)]
    assert len(uncharged) == 1


def test_a_dry_run_for_an_inactive_customer_has_no_meter_values(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /events/dry-run."""
    acme = Customer.of(sandbox)
    sold(sandbox)
    event = {"name": "call", "timestamp": "2026-01-09T00:00:00Z", "customerAlias": "acme", "ref": "r"}
    batch = {"events": [{**event, "data": {"units": 4}}]}
    values = []
    for status in ("Active", "Inactive"):
        set_status(acme, status)
        (told,) = sandbox.ok("POST", "/events/dry-run", batch)["events"]
        values.append((told["matchedCustomer"], [each["value"] for each in told["meterWithValues"]]))

    assert values == [(acme.id, [4]), (acme.id, [None])]
