"""Within an open cycle, and without credits, the order in which usage arrives changes no figure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.histories import START, fresh_sandbox

METHODS = ("count", "sum", "max", "last", "unique")


@dataclass(frozen=True)
class Used:
    """An event; `minute` is unique, since of two at one moment the one that arrives later is the last."""

    minute: int
    units: int

    @property
    def day(self) -> int:
        return self.minute // 1440


@dataclass(frozen=True)
class Measured:
    """A measurement of a day."""

    day: int
    units: int


USAGE = st.tuples(
    st.lists(
        st.builds(Used, st.integers(0, 10 * 1440 - 1), st.integers(1, 5)), unique_by=lambda each: each.minute
    ),
    st.lists(
        st.builds(Measured, st.integers(0, 9), st.integers(0, 9)), unique_by=lambda each: each.day, max_size=2
    ),
)


def by_hand(used: list[Used], measured: list[Measured]) -> dict[str, int]:
    """What each method makes of the usage; a measurement stands for its day."""
    days = {each.day: each.units for each in measured}
    counted = sorted((each for each in used if each.day not in days), key=lambda each: each.minute)
    units = [each.units for each in counted]
    lasts = [(each.minute, each.units) for each in counted] + [
        (day * 1440, value) for day, value in days.items()
    ]
    return {
        "count": len(units) + sum(days.values()),
        "sum": sum(units) + sum(days.values()),
        "max": max([*units, *days.values()], default=0),
        "last": max(lasts, default=(0, 0))[1],
        "unique": len(set(units)) + sum(days.values()),
    }


@pytest.mark.slow
@settings(max_examples=20)
@given(USAGE, st.randoms(use_true_random=False))
def test_usage_adds_up_to_the_same_in_any_order(
    usage: tuple[list[Used], list[Measured]], random: Random
) -> None:
    steps = [*usage[0], *usage[1]]
    random.shuffle(steps)
    with fresh_sandbox() as sandbox:
        owner = sandbox.call("POST", "/_sandbox/customers", {"name": "Acme", "aliases": ["acme"]})
        customer_id = owner["customer"]["id"]
        products = [meter(sandbox.call, method) for method in METHODS]
        sold = [
            {"catalogProductId": each, "displayName": name}
            for each, name in zip(products, METHODS, strict=True)
        ]
        contract = {
            "customerId": customer_id,
            "name": "Deal",
            "startDate": START.isoformat(),
            "products": sold,
        }
        sandbox.call("POST", "/contracts", contract)
        for number, step in enumerate(steps):
            if isinstance(step, Measured):
                day = {"year": 2026, "month": 1, "day": step.day + 1}
                for product in products:
                    usage_of_day = {"customerId": customer_id, "meterId": product, "usageDate": day}
                    sandbox.call("POST", "/measurements", {**usage_of_day, "value": step.units})
            else:
                at = (START + timedelta(minutes=step.minute)).isoformat()
                event = {"name": "call", "timestamp": at, "customerAlias": "acme", "ref": f"ref-{number}"}
                sandbox.call("POST", "/v2/events", {"events": [{**event, "data": {"units": step.units}}]})
        told = sandbox.call("GET", f"/customers/products-consumptions/{customer_id}")["productsConsumptions"]

    found = {each["productName"]: Decimal(each["consumedAmount"]) for each in told}
    assert found == by_hand(*usage)


def meter(call: Any, method: str) -> str:
    """A product that is measured by this method; its id."""
    made = call("POST", "/catalogProducts", {"name": method})["catalogProduct"]["id"]
    wanted = {"name": method, "key": method, "eventName": "call", "aggregationMethod": method}
    call("POST", "/_sandbox/meters", {**wanted, "property": "units", "catalogProductId": made})
    return str(made)
