"""Whose usage it is: by the moment, by the commitment's period, by the older contract, once in a contract."""

from __future__ import annotations

import pytest

from support.sandbox import Running
from support.scenarios import Customer, contract, customer, cycle, fee, invoices, metered


def test_a_yearly_commitment_is_charged_once_and_its_units_are_counted_over_the_year(
    sandbox: Running,
) -> None:
    """Source: spec, "Resources and their fields", Commitment, scheduling."""
    acme = Customer.of(sandbox)
    commitment = {"units": 10, "price": 120, "scheduling": cycle("Months", 3)}
    pricing = {"type": "PerUnit", "price": 2}
    product = metered(sandbox)
    acme.buy({"catalogProductId": product, "pricing": pricing, "commitment": commitment})
    acme.use(7)
    sandbox.advance("P1M")
    acme.use(5, at="2026-02-10T09:00:00Z")
    told = acme.consumptions()[0]
    sandbox.advance("P1M")
    acme.use(1, at="2026-03-10T09:00:00Z")
    sandbox.advance("P2M")
    amounts = [each["amount"] for each in invoices(sandbox)]
    units = [each["lineItems"][0]["units"] for each in invoices(sandbox)]
    crossed = sandbox.raised("CommitmentCrossed")
    overages = [body["overageAmount"] for _, body in sandbox.raised("Overage")]

    assert (told["provisionedAmount"], told["consumedAmount"], told["exceededAmount"]) == (10, 12, 2)
    assert amounts == [120, 4, 2, 120]  # the fourth month begins a new period
    assert units == [7, 5, 1, 0]
    assert len(crossed) == 1
    assert overages == [4, 2]


def test_a_commitment_that_is_for_no_whole_number_of_cycles_is_refused(sandbox: Running) -> None:
    owner = customer(sandbox)
    body = {"customerId": owner, "startDate": "2026-01-10T12:00:00Z", "name": "Deal"}
    answers = [
        sandbox.call("POST", "/contracts", {**body, "products": [fee(1, **terms)]})
        for terms in (
            {"commitment": {"units": 1, "scheduling": cycle("Weeks", 1)}},
            {"scheduling": cycle("Months", 2), "commitment": {"scheduling": cycle("Months", 3)}},
            {"commitment": {"units": 1, "scheduling": cycle("months", 1)}},
        )
    ]

    param = "products.0.commitment.scheduling.duration"
    assert [(each.status, each.json.get("param")) for each in answers] == [(400, param)] * 3


def test_usage_counts_from_the_moment_at_which_a_contract_begins_to_that_of_its_end(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Event, timestamp; Contract, startDate and endDate."""
    acme = Customer.of(sandbox)
    product = metered(sandbox)
    acme.use(1, at="2026-01-12T01:00:00Z")  # on the day of the start, and before it
    acme.use(2, at="2026-01-12T21:00:00Z")
    terms = {"startDate": "2026-01-12T21:00:00Z", "endDate": "2026-02-12T21:00:00Z"}
    sold = {"catalogProductId": product, "pricing": {"type": "PerUnit", "price": 1}}
    acme.buy(sold, **terms, autoRenewContract=False)
    acme.use(4, at="2026-01-12T20:59:59Z")
    acme.use(8, at="2026-01-31T00:00:00Z")
    acme.use(16, at="2026-02-12T20:59:59Z")
    acme.use(32, at="2026-02-12T21:00:00Z")
    sandbox.advance("P40D")
    amounts = [each["amount"] for each in invoices(sandbox)]

    assert amounts == [2 + 8 + 16]


def test_cycles_that_are_over_when_a_contract_is_made_are_billed_at_once(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Contract, startDate."""
    acme = Customer.of(sandbox)
    product = metered(sandbox)
    acme.use(3, at="2025-12-05T00:00:00Z")
    sold = {"catalogProductId": product, "pricing": {"type": "PerUnit", "price": 1}}
    acme.buy(fee(50), sold, startDate="2025-11-01T00:00:00Z")
    told = [(each["amount"], each["billingCycle"]["startTime"]) for each in invoices(sandbox)]

    assert told == [(50, "2025-11-01T00:00:00Z"), (53, "2025-12-01T00:00:00Z")]


@pytest.mark.slow
def test_more_than_400_cycles_that_are_over_are_refused(sandbox: Running) -> None:
    daily = {"products": [fee(1, scheduling=cycle("Days", 1))], "name": "Deal"}
    owner = customer(sandbox)
    body = {**daily, "customerId": owner, "startDate": "2024-12-06T12:00:00Z"}
    answer = sandbox.call("POST", "/contracts", {**body, "startDate": "2024-12-05T12:00:00Z"})
    contract(sandbox, owner, **body)
    count = len(invoices(sandbox))

    assert (answer.status, answer.json["param"]) == (400, "startDate")
    assert count == 400
