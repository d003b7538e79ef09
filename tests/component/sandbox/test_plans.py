"""Plans. Source: spec, "Resources and their fields", Plan; "Endpoints", Plans."""

from __future__ import annotations

from support.sandbox import Running


def test_a_plan_is_read_as_it_was_made_without_its_products(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /plans/{planId}; plan product content: not shown."""
    billing = {
        "billingInterval": "Quarterly",
        "duration": 12,
        "paymentTerm": "Net30",
        "autoRenewal": True,
        "proRated": False,
        "billingDate": {"anchor": "StartOfMonth", "dayOfMonth": 1},
    }
    product = sandbox.ok("POST", "/catalogProducts", {"name": "API calls"})["catalogProduct"]
    sold = [{"catalogProductId": product["id"], "pricing": {"type": "PerUnit", "price": 0.0125}}]
    made = sandbox.ok(
        "POST",
        "/_sandbox/plans",
        {"name": "Growth", "externalId": "plan-growth", "billingData": billing, "products": sold},
    )["plan"]
    read = sandbox.ok("GET", f"/plans/{made['id']}")["plan"]

    assert made["products"] == sold
    assert read == {name: value for name, value in made.items() if name != "products"}
    assert (read["name"], read["status"], read["externalId"]) == ("Growth", "Active", "plan-growth")
    assert read["billingData"] == billing
