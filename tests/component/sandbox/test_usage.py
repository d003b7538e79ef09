"""What customers used, and measurements of it. Source: spec, "Resources and their fields", Measurement."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from billhook.sandbox.billing import daily_usage, meters
from support.sandbox import Answer, Running, check_refused
from support.scenarios import STARTED, Customer


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
