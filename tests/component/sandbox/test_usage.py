"""What customers used, and measurements of it. Source: spec, "Resources and their fields", Measurement."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from billhook.sandbox.billing.usage import daily_usage, meters
from support.sandbox import Answer, Running, check_refused
from support.scenarios import STARTED, Customer, invoices, metered


def new_meter(sandbox: Running, **more: Any) -> str:
    meter = {"name": "m", "eventName": "call", "aggregationMethod": "sum", "property": "units", **more}
    return str(sandbox.ok("POST", "/_sandbox/meters", meter)["meter"]["id"])


def consumed(sandbox: Running, customer_id: str, meter_id: str) -> Decimal:
    """The usage of January."""
    january = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))
    with sandbox.sandbox.service.transaction(writes=False) as tx:
        return daily_usage.consumed_units(tx, customer_id, meters.METERS.get(tx, meter_id), [january])


def test_usage_a_meter_counts_what_comes_after_it_was_made(sandbox: Running) -> None:
    """Source: spec, "Endpoints", Meters: not shown."""
    acme, first = Customer.of(sandbox), new_meter(sandbox)
    acme.use(5)
    later = new_meter(sandbox)
    acme.use(2)

    assert [consumed(sandbox, acme.id, meter) for meter in (first, later)] == [7, 2]


def test_measurements_one_is_stored_and_told_and_a_product_stands_for_its_meter(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /measurements; Measurement, meterId: meter or product."""
    acme = Customer.of(sandbox)
    product = sandbox.ok("POST", "/catalogProducts", {"name": "Storage"})["catalogProduct"]["id"]
    day = {"year": 2026, "month": 1, "day": 15}

    def measure(meter_id: str, value: float) -> Answer:
        given = {"customerId": acme.id, "meterId": meter_id, "usageDate": day, "value": value}
        return sandbox.call("POST", "/measurements", given)

    without = measure(product, 5)
    meter = new_meter(sandbox, catalogProductId=product)
    told = measure(product, 812.5).json["measurement"]
    sandbox.advance("PT1H")
    again = measure(meter, 2.5).json["measurement"]

    check_refused([without], ["meterId"])
    assert again == {**told, "meterId": meter, "value": 2.5, "updatedAt": "2026-01-10T13:00:00Z"}
    assert consumed(sandbox, acme.id, meter) == Decimal("2.5")
    assert told.pop("id").startswith("msr_")
    stamps = {"createdAt": STARTED, "updatedAt": STARTED}
    assert told == {"customerId": acme.id, "meterId": product, "usageDate": day, "value": 812.5, **stamps}


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
