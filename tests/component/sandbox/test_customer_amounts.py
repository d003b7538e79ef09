"""What a customer owes. Source: spec, "Resources and their fields", Customer, the five amounts."""

from __future__ import annotations

import json
from decimal import Decimal

from support.sandbox import Running
from support.scenarios import Customer, customer, fee, top_up

NAMES = ("totalOutstanding", "open", "overdue", "pendingPayment", "paid")


def amounts(sandbox: Running, customer_id: str) -> dict[str, Decimal]:
    """The five amounts, digit for digit."""
    answer = sandbox.call("PUT", f"/customers/{customer_id}", {})
    customer = json.loads(answer.body, parse_float=Decimal)["customer"]
    return {name: customer[f"{name}Amount"] for name in NAMES}


def test_a_customers_amounts_are_those_of_its_invoices_by_their_status(sandbox: Running) -> None:
    first, other = customer(sandbox), customer(sandbox)
    made = [top_up(sandbox, first, price=price) for price in (0.10, 20.20, 300.30, 4000)]
    paths = [f"/_sandbox/invoices/{answer.json['invoiceId']}" for answer in made]
    pending, paid, refused, _ = paths
    for path in (pending, paid, refused):
        sandbox.ok("POST", f"{path}/approve")
    sandbox.ok("POST", f"{pending}/payments", {"outcome": "paid", "amount": 0.04})
    sandbox.ok("POST", f"{paid}/payments", {"outcome": "paid"})
    sandbox.ok("POST", f"{refused}/payments", {"outcome": "failed"})
    owed, others = amounts(sandbox, first), amounts(sandbox, other)
    sandbox.advance("P30D")
    overdue = amounts(sandbox, first)

    assert owed == {
        "totalOutstanding": Decimal("4300.36"),
        "open": Decimal("4000.00"),
        "overdue": Decimal("0.00"),
        "pendingPayment": Decimal("0.10"),
        "paid": Decimal("20.20"),
    }
    assert others == dict.fromkeys(NAMES, Decimal("0.00"))
    assert overdue == {
        **owed,
        "open": Decimal("0.00"),
        "overdue": Decimal("300.40"),
        "pendingPayment": Decimal("4000.00"),
    }


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
