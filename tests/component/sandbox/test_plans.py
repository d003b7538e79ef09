"""Plans. Source: spec, "Resources and their fields", Plan; "Endpoints", Plans."""

from __future__ import annotations

from typing import Any

from support.sandbox import Running, check_refused
from support.scenarios import cycle


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


_EVERY_YEAR = cycle("Years", 1)

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name"),
    ({"externalId": ""}, "externalId"),
    ({"billingData": {"billingInterval": "Weekly"}}, "billingData.billingInterval"),
    ({"billingData": {"duration": 0}}, "billingData.duration"),
    ({"billingData": {"duration": 1.5}}, "billingData.duration"),
    ({"billingData": {"duration": 1201}}, "billingData.duration"),
    ({"billingData": {"billingDate": {"dayOfMonth": 0}}}, "billingData.billingDate.dayOfMonth"),
    ({"billingData": {"billingDate": {"dayOfMonth": 32}}}, "billingData.billingDate.dayOfMonth"),
    ({"products": [{"scheduling": {"billingDay": 0}}]}, "products.0.scheduling.billingDay"),
    ({"products": [{"catalogProductId": "cat_none"}]}, "products.0.catalogProductId"),
    ({"products": [{"pricing": {"type": "Tiered"}}]}, "products.0.pricing.tiers"),
    ({"products": [{}] * 1001}, "products"),
    ({"products": [{}, {"scheduling": _EVERY_YEAR}]}, "products.1.scheduling.duration"),
    (
        {"billingData": {"billingInterval": "Quarterly"}, "products": [{"scheduling": _EVERY_YEAR}]},
        "products.0.scheduling.duration",
    ),
    ({"products": [{"scheduling": cycle("Year", 1)}]}, "products.0.scheduling.duration.unit"),
]


def test_a_plan_that_could_not_be_sold_is_refused(sandbox: Running) -> None:
    answers = [sandbox.call("POST", "/_sandbox/plans", {"name": "Growth", **fields}) for fields, _ in WRONG]

    check_refused(answers, [param for _, param in WRONG])
