"""What customers used, and measurements of it. Source: spec, "Resources and their fields", Measurement."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from billhook.sandbox.billing import daily_usage, meters
from support.sandbox import Running

JANUARY = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))
METHODS = ("count", "sum", "max", "last", "unique")


class Used:
    """A sandbox with a customer and a meter of each method on `value`."""

    def __init__(self, sandbox: Running) -> None:
        self.sandbox = sandbox
        made = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme", "aliases": ["acme"]})
        self.customer_id: str = made["customer"]["id"]
        self.meters = {method: self._meter(method) for method in METHODS}
        self._number = 0

    def _meter(self, method: str) -> str:
        given = {"name": method, "eventName": "e", "aggregationMethod": method, "property": "value"}
        meter_id: str = self.sandbox.ok("POST", "/_sandbox/meters", {**given, "key": method})["meter"]["id"]
        return meter_id

    def send(self, *values: tuple[str, Any]) -> None:
        """Take one batch of (timestamp, value); a Decimal is written with its digits."""
        events = []
        for timestamp, value in values:
            self._number += 1
            text = str(value) if isinstance(value, Decimal) else f'"{value}"'
            events.append(
                f'{{"name":"e","customerAlias":"acme","ref":"{self._number}","timestamp":"{timestamp}",'
                f'"data":{{"value":{text}}}}}'
            )
        answer = self.sandbox.call("PUT", "/events", f'{{"events":[{",".join(events)}]}}'.encode())
        assert answer.status == 200
        assert answer.json["invalidEvents"] == []

    def consumed(self, start: datetime = JANUARY[0], end: datetime = JANUARY[1]) -> dict[str, Decimal]:
        """The figure of each method."""
        with self.sandbox.sandbox.service.transaction(writes=False) as tx:
            return {
                method: daily_usage.consumed_units(
                    tx, self.customer_id, meters.METERS.get(tx, meter_id), [(start, end)]
                )
                for method, meter_id in self.meters.items()
            }

    def measure(self, method: str, day: int, units: float, **changes: Any) -> Any:
        """Tell the figure of a day in January."""
        date = {"year": 2026, "month": 1, "day": day}
        given = {"customerId": self.customer_id, "meterId": self.meters[method], "usageDate": date}
        return self.sandbox.call("POST", "/measurements", {**given, "value": units, **changes})


def test_usage_a_meter_counts_what_comes_after_it_was_made(sandbox: Running) -> None:
    """Source: spec, "Endpoints", Meters: not shown."""
    used = Used(sandbox)
    used.send(("2026-01-05", Decimal(5)))
    made = sandbox.ok(
        "POST",
        "/_sandbox/meters",
        {"name": "later", "eventName": "e", "aggregationMethod": "sum", "property": "value"},
    )
    used.meters["later"] = made["meter"]["id"]
    used.send(("2026-01-05", Decimal(2)))

    found = used.consumed()

    assert (found["sum"], found["later"]) == (7, 2)


def test_measurements_one_is_stored_and_told(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /measurements."""
    used = Used(sandbox)
    told = used.measure("sum", 15, 812.5).json["measurement"]
    sandbox.advance("PT1H")
    again = used.measure("sum", 15, 2.5).json["measurement"]

    assert again == {**told, "value": 2.5, "updatedAt": "2026-01-10T13:00:00Z"}
    assert used.consumed()["sum"] == Decimal("2.5")
    assert told.pop("id").startswith("msr_")
    assert told == {
        "customerId": used.customer_id,
        "meterId": used.meters["sum"],
        "usageDate": {"year": 2026, "month": 1, "day": 15},
        "value": 812.5,
        "createdAt": "2026-01-10T12:00:00Z",
        "updatedAt": "2026-01-10T12:00:00Z",
    }


def test_measurements_a_product_stands_for_its_meter(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Measurement, meterId: meter or product."""
    used = Used(sandbox)
    product = sandbox.ok("POST", "/catalogProducts", {"name": "Storage"})["catalogProduct"]["id"]
    without = used.measure("sum", 15, 5, meterId=product)
    given = {"name": "p", "eventName": "e", "aggregationMethod": "count", "catalogProductId": product}
    meter = sandbox.ok("POST", "/_sandbox/meters", given)["meter"]["id"]

    by_product = used.measure("sum", 15, 5, meterId=product).json["measurement"]
    by_meter = used.measure("sum", 15, 6, meterId=meter).json["measurement"]

    assert (without.status, without.json["param"]) == (400, "meterId")
    assert by_product["id"] == by_meter["id"]
    assert by_product["meterId"] == product
