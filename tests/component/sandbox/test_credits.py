"""Credits: the ledger that lists them, and their products. `bills.toml` tells how they are drawn."""

from __future__ import annotations

from typing import Any

from support.sandbox import Running
from support.scenarios import Customer


def grant(customer: Customer, amount: float, product: str = "crp_a", **fields: Any) -> dict[str, Any]:
    """Grant credits directly; the ledger's entry."""
    wanted = {"customerId": customer.id, "creditAmount": amount, "creditProductId": product, **fields}
    return dict(customer.sandbox.ok("POST", "/_sandbox/credits/grant", wanted)["entry"])


def test_credits_lists_the_ledger_of_a_customer_page_by_page(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /credits."""
    acme, other = Customer.of(sandbox), Customer.of(sandbox, "other")
    for amount in (10, 20, 30):
        grant(acme, amount)
    grant(other, 99)

    first = sandbox.ok("GET", f"/credits?customerId={acme.id}&limit=2")
    rest = sandbox.ok("GET", f"/credits?customerId={acme.id}&limit=2&cursor={first['nextCursor']}")

    assert (first["total"], first["hasMore"], rest["hasMore"]) == (3, True, False)
    entries = [*first["entries"], *rest["entries"]]
    assert [(each["amount"], each["balanceAfterEntry"]) for each in entries] == [(10, 10), (20, 30), (30, 60)]
    assert {each["type"] for each in entries} == {"Grant"}
    assert all(each["id"].startswith("cle_") for each in entries)


def test_credit_products_are_made_and_listed(sandbox: Running) -> None:
    """Source: spec, "Endpoints", Credits: listing credit products; path and shape are not shown."""
    made = [
        sandbox.ok("POST", "/_sandbox/creditProducts", {"name": name, **kind})["creditProduct"]
        for name, kind in (("Calls", {"balanceKind": "Unit"}), ("Money", {}))
    ]

    page = sandbox.ok("GET", "/_sandbox/creditProducts?limit=1")

    assert [each["balanceKind"] for each in made] == ["Unit", "Monetary"]
    assert (page["creditProducts"], page["total"], page["hasMore"]) == ([made[0]], 2, True)


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
