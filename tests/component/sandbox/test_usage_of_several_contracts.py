"""Usage where several contracts of a customer sell the same: each unit is billed by one of them."""

from __future__ import annotations

from typing import Any

from support.sandbox import Running
from support.scenarios import Customer, invoices, metered

ENDS_AT_NOON = {"endDate": "2026-01-15T12:00:00Z", "autoRenewContract": False}


def per_unit(product: str, price: float = 1) -> dict[str, Any]:
    return {"catalogProductId": product, "pricing": {"type": "PerUnit", "price": price}}


def billed_units(sandbox: Running) -> dict[str, float]:
    """Units by the id of the contract that billed them."""
    found: dict[str, float] = {}
    for invoice in invoices(sandbox):
        units = sum(line["units"] for line in invoice["lineItems"])
        found[invoice["contractId"]] = found.get(invoice["contractId"], 0) + units
    return found


def test_a_measurement_of_the_day_of_a_handover_is_billed_once(sandbox: Running) -> None:
    """By the contract that has the end of the day."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    first = acme.buy(per_unit(calls), **ENDS_AT_NOON)
    second = acme.buy(per_unit(calls))
    acme.measure(calls, 10, day=15)
    sandbox.advance("PT1H")
    consumed = [each["consumedAmount"] for each in acme.consumptions()]
    sandbox.advance("P30D")

    assert billed_units(sandbox) == {first: 0, second: 10}
    assert sorted(consumed) == [0, 10]


def test_a_measurement_follows_a_contract_that_is_created_late(sandbox: Running) -> None:
    """It sells the rest of a day that another contract has billed, by an invoice that is not approved yet."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    first = acme.buy(per_unit(calls), **ENDS_AT_NOON)
    acme.measure(calls, 10, day=15)
    sandbox.advance("P5DT6H")
    billed = billed_units(sandbox)
    second = acme.buy(per_unit(calls), startDate="2026-01-15T13:00:00Z")
    sandbox.advance("P31D")

    assert billed == {first: 10}
    assert billed_units(sandbox) == {first: 0, second: 10}
