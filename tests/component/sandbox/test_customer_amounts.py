"""What a customer owes. Source: spec, "Resources and their fields", Customer, the five amounts."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from support.sandbox import Running
from support.scenarios import Customer, fee

NAMES = ("totalOutstanding", "open", "overdue", "pendingPayment", "paid")


def amounts(sandbox: Running, customer_id: str) -> dict[str, Decimal]:
    """The five amounts, digit for digit."""
    answer = sandbox.call("PUT", f"/customers/{customer_id}", {})
    customer = json.loads(answer.body, parse_float=Decimal)["customer"]
    return {name: customer[f"{name}Amount"] for name in NAMES}


def billed(sandbox: Running, customer_id: str, price: float) -> str:
    """The id of an invoice over `price`, for credits."""
    body: dict[str, Any] = {
        "customerId": customer_id,
        "creditGrant": {
            "name": "Credits",
            "creditProductId": "crp_1",
            "balanceKind": "Monetary",
            "grantAmount": 100,
            "schedule": "Once",
            "price": price,
        },
    }
    return str(sandbox.ok("POST", "/credits/top-up", body)["invoiceId"])


def test_a_customers_amounts_are_those_of_its_invoices_by_their_status(sandbox: Running) -> None:
    first, other = (
        sandbox.ok(
            "POST",
            "/_sandbox/customers",
            {"name": "Acme", "contacts": [{"email": "a@acme.example", "receiveInvoiceEmail": True}]},
        )["customer"]["id"]
        for _ in range(2)
    )
    pending, paid, refused = (billed(sandbox, first, price) for price in (0.10, 20.20, 300.30))
    billed(sandbox, first, 4000)
    for invoice in (pending, paid, refused):
        sandbox.ok("POST", f"/_sandbox/invoices/{invoice}/approve")
    sandbox.ok("POST", f"/_sandbox/invoices/{pending}/payments", {"outcome": "paid", "amount": 0.04})
    sandbox.ok("POST", f"/_sandbox/invoices/{paid}/payments", {"outcome": "paid"})
    sandbox.ok("POST", f"/_sandbox/invoices/{refused}/payments", {"outcome": "failed"})
    owed, others = amounts(sandbox, first), amounts(sandbox, other)

    assert owed == {
        "totalOutstanding": Decimal("4300.36"),
        "open": Decimal("4000.00"),
        "overdue": Decimal("0.00"),
        "pendingPayment": Decimal("0.10"),
        "paid": Decimal("20.20"),
    }
    assert others == dict.fromkeys(NAMES, Decimal("0.00"))


@pytest.mark.slow
def test_an_invoice_that_is_not_paid_in_time_is_overdue_and_outstanding(sandbox: Running) -> None:
    customer = sandbox.ok(
        "POST",
        "/_sandbox/customers",
        {"name": "Acme", "contacts": [{"email": "a@acme.example", "receiveInvoiceEmail": True}]},
    )["customer"]["id"]
    sandbox.ok("POST", f"/_sandbox/invoices/{billed(sandbox, customer, 7)}/approve")
    sandbox.advance("P31D")
    owed = amounts(sandbox, customer)

    assert (owed["overdue"], owed["totalOutstanding"], owed["pendingPayment"]) == (7, 7, 0)


def test_a_customers_currency_stays_while_a_contract_is_billed_in_it(sandbox: Running) -> None:
    acme = Customer.of(sandbox, currency="USD")
    contract_id = acme.buy(fee(5))
    path = f"/customers/{acme.id}"

    refused = sandbox.call("PUT", path, {"currency": "JPY"})
    same = sandbox.ok("PUT", path, {"currency": "USD", "name": "Acme Corp"})
    sandbox.ok("DELETE", f"/contracts/{contract_id}")
    changed = sandbox.ok("PUT", path, {"currency": "JPY"})

    assert (refused.status, refused.json["param"]) == (400, "currency")
    assert (
        refused.json["message"] == f"contract {contract_id} is billed in USD, the customer's: delete it first"
    )
    assert (same["customer"]["name"], changed["customer"]["currency"]) == ("Acme Corp", "JPY")
