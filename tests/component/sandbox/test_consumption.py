"""Products and how much of them is used, up to the invoice."""

from __future__ import annotations

import pytest

from support.sandbox import Running
from support.scenarios import Customer, invoices, metered


def test_products_consumptions_has_the_remaining_amount_of_each_product(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Product consumption."""
    product = metered(sandbox)
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": product, "commitment": {"units": 200}}, {"displayName": "Support"})

    acme.use(20, 30.5)

    calls, support = acme.consumptions()
    assert calls == {
        "productId": product,
        "productName": "calls",
        "provisionedAmount": 200,
        "consumedAmount": 50.5,
        "usagePercentage": 25.25,
        "hasAccess": True,
        "remainingAmount": 149.5,
        "exceededAmount": 0,
    }
    assert (support["productName"], support["provisionedAmount"], support["hasAccess"]) == (
        "Support",
        0,
        True,
    )


@pytest.mark.slow
def test_absurd_figures_stop_neither_usage_nor_the_clock(sandbox: Running) -> None:
    """The wire takes numbers of 640 digits; what two of them make together it would not take."""
    product = metered(sandbox)
    acme = Customer.of(sandbox)
    huge, tiny = 10**639, float("1e-300")
    tiers = {"type": "Tiered", "tiers": [{"upTo": 10**200, "price": huge}, {"upTo": huge, "price": tiny}]}
    off = {"type": "Percentage", "amount": huge}
    for event_type in ("CommitmentUsageCrossed", "CurrencyCommitmentUsageCrossed"):
        thresholds = {"threshold": tiny, "recurringThreshold": tiny}
        wanted = {"callbackUrl": "http://127.0.0.1:9/", "eventType": event_type, **thresholds}
        sandbox.ok("POST", "/webhook", wanted)
    acme.buy(
        {"catalogProductId": product, "pricing": {"type": "PerUnit", "price": huge, "discount": off}},
        {"catalogProductId": product, "pricing": tiers, "commitment": {"units": tiny, "price": huge}},
        {
            "catalogProductId": product,
            "pricing": {"type": "PerUnit", "price": tiny},
            "commitment": {"type": "Currency", "price": huge},
        },
        currency="EUR",
    )

    acme.use(tiny, huge)

    assert len(acme.consumptions()) == 3
    sandbox.advance("P1M")
    assert len(invoices(sandbox)[-1]["lineItems"]) == 3
