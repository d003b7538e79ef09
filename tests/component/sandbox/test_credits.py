"""Credits: the ledger that lists them, and their products. `bills.toml` tells how they are drawn."""

from __future__ import annotations

from support.sandbox import Running
from support.scenarios import Customer


def test_the_ledger_is_of_one_customer_and_credit_products_have_a_kind(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /credits; the path of credit products is not shown."""
    acme, other = Customer.of(sandbox), Customer.of(sandbox, "other")
    for owner, amount in ((acme, 10), (other, 99), (acme, 20)):
        sandbox.ok("POST", "/_sandbox/credits/grant", {"customerId": owner.id, "creditAmount": amount})
    kinds = [
        sandbox.ok("POST", "/_sandbox/creditProducts", {"name": "Calls", **kind})["creditProduct"][
            "balanceKind"
        ]
        for kind in ({"balanceKind": "Unit"}, {})
    ]

    assert acme.changes() == [("Grant", 10, 10), ("Grant", 20, 30)]
    assert kinds == ["Unit", "Monetary"]


def test_credits_that_went_without_usage_have_a_credit_note(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Credit ledger entry."""
    acme = Customer.of(sandbox)
    grant = {"customerId": acme.id, "creditAmount": 10}
    sandbox.ok("POST", "/_sandbox/credits/grant", {**grant, "expirationDate": "2026-01-12T00:00:00Z"})
    sandbox.ok("POST", "/credits/deduct", {"customerId": acme.id, "creditAmount": 1})
    sandbox.advance("P3D")
    granted, deducted, expired = acme.ledger()

    assert "creditNoteNumber" not in granted
    assert (deducted["creditNoteNumber"], expired["creditNoteNumber"]) == ("CN-2026-0002", "CN-2026-0003")
    for entry in (granted, deducted, expired):
        assert (entry["erpId"], entry["integrationEntities"]) == (None, [])
