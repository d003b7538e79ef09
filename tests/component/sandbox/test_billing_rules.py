"""Rules of billing that the specification leaves to the service, each by what happens."""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import Running
from support.scenarios import Customer, approve, contract, customer, fee, invoices, metered


def amounts(sandbox: Running, customer_id: str) -> dict[str, float]:
    told = sandbox.ok("GET", f"/_sandbox/customers/{customer_id}")["customer"]
    return {name: told[f"{name}Amount"] for name in ("totalOutstanding", "open", "pendingPayment", "paid")}


# --- currencies -----------------------------------------------------------------------------------


def test_amounts_of_a_customer_are_in_dollars_at_the_rate_of_the_issue(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Customer, totalOutstandingAmount."""
    owner = customer(sandbox)
    rates = sandbox.ok("PUT", "/_sandbox/exchangeRates", {"rates": {"EUR": 1.5, "JPY": 0.01}})["rates"]
    contract(sandbox, owner, currency="EUR", products=[fee(100)])
    contract(sandbox, owner, currency="JPY", products=[fee(100.555)])
    sandbox.advance("P1M")
    sandbox.ok("PUT", "/_sandbox/exchangeRates", {"rates": {"EUR": 9}})
    owed = amounts(sandbox, owner)
    billed = [(each["currency"], each["amount"]) for each in invoices(sandbox)]

    assert billed == [("EUR", 100), ("JPY", 101)]  # a yen has no parts
    assert (owed["totalOutstanding"], owed["open"]) == (151.01, 151.01)
    assert (rates["USD"], rates["GBP"]) == (1, 1.25)


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


# --- usage beyond what was provisioned ------------------------------------------------------------


@pytest.mark.slow
def test_an_overage_is_raised_with_or_without_cost(sandbox: Running) -> None:
    """Source: spec, "Events", Overage: the customer exceeds the provisioned amount of a product."""
    product = metered(sandbox)
    sold: list[tuple[dict[str, Any], str, float]] = [
        ({"type": "PerUnit", "price": 1}, "Bill", 2),
        ({"type": "PerUnit", "price": 0}, "Bill", 0),
        ({"type": "Flat", "price": 9}, "Bill", 0),
        ({"price": 1}, "Block", 0),
    ]
    owners = []
    exact = Customer.of(sandbox, "exact")
    exact.buy({"catalogProductId": product, "commitment": {"units": 10, "price": 5}})
    exact.use(10)
    for number, (pricing, strategy, _) in enumerate(sold):
        acme = Customer.of(sandbox, f"acme{number}")
        commitment = {"units": 10, "price": 5, "overageStrategy": strategy}
        acme.buy({"catalogProductId": product, "commitment": commitment, "pricing": pricing})
        acme.use(12)
        owners.append(acme.id)
    sandbox.advance("P1M")
    billed = {each["id"]: each["customerId"] for each in invoices(sandbox)}
    told = [body for _, body in sandbox.raised("Overage")]

    assert [each["overageAmount"] for each in told] == [amount for *_, amount in sold]
    assert [each["customerId"] for each in told] == owners == [billed[each["invoiceId"]] for each in told]


def test_a_commitment_without_a_price_costs_its_units(sandbox: Running) -> None:
    sold = {"catalogProductId": metered(sandbox), "pricing": {"type": "PerUnit", "price": 0.3}}
    without, free = {"units": 100}, {"units": 100, "price": 0}
    for number, (commitment, units) in enumerate([(without, 0), (without, 100), (without, 150), (free, 150)]):
        acme = Customer.of(sandbox, f"acme{number}")
        acme.buy({**sold, "commitment": commitment})
        acme.use(units)
    sandbox.advance("P1M")

    assert [each["amount"] for each in invoices(sandbox)] == [30, 30, 45, 15]


# --- thresholds -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_expired_is_no_part_of_the_used_share(sandbox: Running) -> None:
    acme = Customer.of(sandbox)
    grant = {"customerId": acme.id, "creditAmount": 100}
    sandbox.ok("POST", "/_sandbox/credits/grant", {**grant, "expirationDate": "2026-01-12T00:00:00Z"})
    sandbox.ok("POST", "/_sandbox/credits/grant", grant)
    sandbox.advance("P3D")
    for amount in (79, 1):
        sandbox.ok("POST", "/credits/deduct", {"customerId": acme.id, "creditAmount": amount})
    told = [body for _, body in sandbox.raised("CreditPoolThresholdCrossed")]

    assert [(each["threshold"], each["pctUsage"], each["balance"]) for each in told] == [(80, 80, 20)]


# --- payment --------------------------------------------------------------------------------------


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


# --- contracts and reports ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_contract_in_review_expires_at_its_end(sandbox: Running) -> None:
    """Source: spec, "Events", ContractExpired."""
    end = "2026-02-10T00:00:00Z"
    made = contract(sandbox, status="InReview", endDate=end)["id"]
    other = contract(sandbox, status="InReview", endDate=end)["id"]
    sandbox.ok("POST", f"/_sandbox/contracts/{other}/activate")
    sandbox.advance("P40D")
    expired = [(body["contractId"], body["date"]) for _, body in sandbox.raised("ContractExpired")]
    late = sandbox.call("POST", f"/_sandbox/contracts/{made}/activate")

    assert expired == [(made, end)]  # the active one was renewed
    assert late.json["code"] == "not_in_review"


# --- the credit ledger ----------------------------------------------------------------------------


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


def test_control_a_flat_price_below_zero_is_a_rebate(sandbox: Running) -> None:
    acme = Customer.of(sandbox)
    acme.buy(fee(10), fee(-7))
    sandbox.advance("P40D")

    assert [invoice["amount"] for invoice in invoices(sandbox)] == [3]
