"""Whose usage it is: by the moment, by the commitment's period, by the older contract, once in a contract."""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import Running
from support.scenarios import Customer, contract, customer, cycle, fee, invoices, metered


def billed(sandbox: Any, contract_id: str) -> list[float]:
    """What the invoices of a contract come to, oldest first."""
    return [each["amount"] for each in invoices(sandbox) if each.get("contractId") == contract_id]


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


@pytest.mark.slow
def test_a_day_that_a_cycle_cuts_is_counted_apart_by_every_method(sandbox: Running) -> None:
    methods = {"count": [2, 1], "max": [3, 2], "last": [1, 2], "unique": [2, 1]}
    acme = Customer.of(sandbox)
    made = {}
    sold = {
        method: metered(sandbox, method, eventName="call", aggregationMethod=method) for method in methods
    }
    acme.use(3, at="2026-02-10T08:00:00Z")
    for method, product in sold.items():
        terms = {"catalogProductId": product, "pricing": {"type": "PerUnit", "price": 1}}
        made[method] = acme.buy(terms, startDate="2026-01-10T12:00:00Z")
    acme.use(1, at="2026-02-10T11:00:00Z")
    acme.use(2, at="2026-02-10T13:00:00Z")
    sandbox.advance("P2M")
    amounts = {method: billed(sandbox, contract_id) for method, contract_id in made.items()}

    assert amounts == methods


@pytest.mark.slow
@pytest.mark.parametrize("status", ["InReview", "Active"])
def test_a_contract_that_comes_into_force_late_bills_nothing_again(sandbox: Running, status: str) -> None:
    """One that begins before another, and is activated or made when that has billed its usage."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    sold = {"catalogProductId": calls, "pricing": {"type": "PerUnit", "price": 1}}
    early = {"startDate": "2025-12-01T00:00:00Z", "status": status}
    late = acme.buy(sold, **early) if status == "InReview" else ""
    newer = acme.buy(sold)
    acme.use(4, at="2025-12-20T00:00:00Z")
    acme.use(3)
    sandbox.advance("P30D")
    acme.use(5, at="2026-02-03T00:00:00Z")
    acme.use(1)
    if status == "InReview":
        sandbox.ok("POST", f"/_sandbox/contracts/{late}/activate")
    else:
        late = acme.buy(sold, **early)
    sandbox.advance("P30D")
    of_late, of_newer = billed(sandbox, late), billed(sandbox, newer)

    assert (of_late, of_newer) == ([4, 0, 0], [3, 6])


@pytest.mark.slow
def test_a_contract_that_was_never_in_force_takes_no_usage(sandbox: Running) -> None:
    acme, calls = Customer.of(sandbox), metered(sandbox)
    sold = {"catalogProductId": calls, "pricing": {"type": "PerUnit", "price": 1}}
    term = {"startDate": "2025-12-01T00:00:00Z", "endDate": "2026-01-20T00:00:00Z"}
    acme.buy(sold, **term, status="InReview", autoRenewContract=False)
    newer = acme.buy(sold)
    acme.use(3)
    sandbox.advance("P30D")

    assert billed(sandbox, newer) == [3]


def test_usage_goes_to_the_older_of_two_contracts_that_sell_the_same(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", ContractProduct, catalogProductId."""
    acme = Customer.of(sandbox)
    product = metered(sandbox)
    sold = {"catalogProductId": product, "pricing": {"type": "PerUnit", "price": 1}}
    older = acme.buy(sold, endDate="2026-01-20T00:00:00Z", autoRenewContract=False)
    newer = acme.buy(sold, startDate="2026-01-05T00:00:00Z")
    acme.use(12)
    acme.use(3, at="2026-01-25T00:00:00Z")
    sandbox.advance("P30D")
    of_older, of_newer = billed(sandbox, older), billed(sandbox, newer)

    assert (of_older, of_newer) == ([12], [3])


@pytest.mark.slow
def test_what_a_contract_sells_twice_is_counted_once(sandbox: Running) -> None:
    acme = Customer.of(sandbox)
    sold = {"catalogProductId": metered(sandbox), "pricing": {"type": "PerUnit", "price": 1}}
    acme.buy(sold, {**sold, "commitment": {"units": 5, "price": 7}})
    acme.use(12)
    sandbox.advance("P1M")
    (invoice,) = invoices(sandbox)

    assert [each["revenueBreakdown"]["total"] for each in invoice["lineItems"]] == [12, 7]


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
@pytest.mark.parametrize("over", [False, True])
def test_cycles_that_are_over_have_the_credits_that_the_contract_granted_in_them(
    sandbox: Running, over: bool
) -> None:
    """Source: spec, "Resources and their fields", Contract, creditGrants."""
    grant = {"creditProductId": "crp_a", "balanceKind": "Monetary", "grantAmount": 5, "price": 4}
    term = {"startDate": "2025-11-10T12:00:00Z", "endDate": "2026-01-10T12:00:00Z"}
    acme, calls = Customer.of(sandbox), metered(sandbox)
    acme.use(7, at="2025-11-20T00:00:00Z")
    acme.use(7, at="2025-12-20T00:00:00Z")
    acme.buy(
        {
            "catalogProductId": calls,
            "pricing": {"type": "PerUnit", "price": 1},
            "consumesCreditProductIds": ["crp_a"],
        },
        creditGrants=[{**grant, "schedule": "Monthly"}, {**grant, "creditProductId": "crp_b"}],
        **(term if over else {"startDate": term["startDate"]}),
        autoRenewContract=not over,
    )
    breakdowns = [each["revenueBreakdown"] for each in invoices(sandbox)]
    sandbox.advance("P1M")
    later = [each["amount"] for each in invoices(sandbox)][2:]

    # Of two months there are 10 for usage that costs 14; where it goes on, those of the third month besides.
    paid = [(each["subtotal"], each["creditsUsed"], each["total"]) for each in breakdowns]
    assert paid == ([(15, 7, 8), (11, 3, 8)] if over else [(15, 7, 8), (11, 7, 4)])
    assert later == ([] if over else [4])


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
