"""Rules of billing that the specification leaves to the service, each by what happens."""

from __future__ import annotations

from typing import Any

from support.sandbox import Running
from support.scenarios import Customer, approve, contract, customer, fee, invoices, metered


def test_a_currency_without_a_rate_is_refused_until_it_has_one(sandbox: Running) -> None:
    owner = customer(sandbox)
    body = {"customerId": owner, "startDate": "2026-01-10T12:00:00Z", "name": "Deal", "currency": "SEK"}
    refused = sandbox.call("POST", "/contracts", body)
    of_customer = sandbox.call("POST", "/_sandbox/customers", {"name": "Acme", "currency": "SEK"})
    sandbox.ok("PUT", "/_sandbox/exchangeRates", {"rates": {"SEK": 0.1}})

    assert (refused.status, refused.json["param"]) == (400, "currency")
    assert "PUT /_sandbox/exchangeRates" in refused.json["message"]
    assert (of_customer.status, of_customer.json["param"]) == (400, "currency")
    assert sandbox.ok("POST", "/contracts", body)["contract"]["currency"] == "SEK"
    assert customer(sandbox, currency="SEK")
    assert sandbox.ok("GET", "/_sandbox/exchangeRates")["rates"]["SEK"] == 0.1


def test_a_rate_that_cannot_be_is_refused(sandbox: Running) -> None:
    for rates, param in (
        ({"EUR": 0}, "rates"), ({"eur": 1}, "rates"), ({"USD": 2}, "rates"), ({"EUR": "1"}, "rates.EUR"),
    ):  # fmt: skip
        answer = sandbox.call("PUT", "/_sandbox/exchangeRates", {"rates": rates})

        assert (answer.status, answer.json["param"]) == (400, param)


def test_a_payment_is_no_part_of_what_its_currency_has(sandbox: Running) -> None:
    """Source: ISO 4217, minor units."""
    sandbox.ok("PUT", "/_sandbox/exchangeRates", {"rates": {"KWD": 3.25}})
    parts = {"USD": (0.001, 0.01), "JPY": (0.5, 1), "KWD": (0.0001, 0.001)}
    for currency in parts:
        contract(sandbox, currency=currency, products=[fee(100)])
    sandbox.advance("P1M")
    for invoice in invoices(sandbox):
        approve(sandbox, invoice)
        odd, even = parts[invoice["currency"]]
        path = f"/_sandbox/invoices/{invoice['id']}/payments"
        refused = [
            sandbox.call("POST", path, {"outcome": outcome, "amount": odd}) for outcome in ("paid", "failed")
        ]
        taken = sandbox.call("POST", path, {"outcome": "paid", "amount": even})

        assert [(each.status, each.json["param"]) for each in refused] == [(400, "amount")] * 2
        assert taken.status == 200


def test_credits_that_went_without_usage_have_a_credit_note(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Credit ledger entry."""
    acme = Customer.of(sandbox)
    grant = {"customerId": acme.id, "creditAmount": 10}
    sandbox.ok("POST", "/_sandbox/credits/grant", {**grant, "expirationDate": "2026-01-12T00:00:00Z"})
    sandbox.ok("POST", "/credits/deduct", {"customerId": acme.id, "creditAmount": 1})
    sandbox.advance("P3D")
    granted, deducted, expired = acme.ledger()

    assert "creditNoteNumber" not in granted
    assert (deducted["creditNoteNumber"], expired["creditNoteNumber"]) == ("CN-2026-0002", "CN-2026-0003")
    for entry in (granted, deducted, expired):
        assert (entry["erpId"], entry["integrationEntities"]) == (None, [])


TIERS = [{"upTo": 5, "price": 2}, {"upTo": None, "price": 3}]


MISLEADING: list[tuple[dict[str, Any], str, str]] = [
    (
        {"pricing": {"price": 1, "tiers": TIERS}},
        "pricing.tiers",
        "tiers are for pricing of the type Tiered",
    ),
    ({"pricing": {"type": "Flat", "tiers": TIERS}}, "pricing.tiers", "tiers are for pricing of the type"),
    (
        {"pricing": {"type": "Tiered", "tiers": [{"price": -1}]}},
        "pricing.tiers",
        "must not be neg",
    ),
    (
        {"pricing": {"type": "PerUnit", "price": -1}},
        "pricing.price",
        "price is -1: it must not",
    ),
    ({"pricing": {"discount": {"amount": -5}}}, "pricing.discount.amount", "amount is -5: it must not"),
    ({"pricing": {"discount": {"amount": 1, "recurring": -1}}}, "pricing.discount.recurring", "is -1"),
    (
        {"commitment": {"units": -5, "price": 10}},
        "commitment.units",
        "units is -5: it must not",
    ),
]


def test_a_term_that_would_not_be_billed_as_it_says_is_refused(sandbox: Running) -> None:
    product = {"catalogProductId": metered(sandbox)}
    wanted = {"name": "n", "customerId": customer(sandbox), "startDate": "2026-01-01T00:00:00Z"}

    for terms, param, told in MISLEADING:
        answer = sandbox.call("POST", "/contracts", {**wanted, "products": [{**product, **terms}]})

        assert (answer.status, answer.json["param"]) == (400, f"products.0.{param}")
        assert told in answer.json["message"]
