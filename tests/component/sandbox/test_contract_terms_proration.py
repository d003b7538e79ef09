"""Fees of cycles that are shorter than their period.

Source: spec, "Resources and their fields", Contract, shouldProRateInvoices: deprecated, false by default;
Plan, billingData.proRated. What is pro-rated, and by what, is not shown: fees are, by days.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import Running
from support.scenarios import Customer, contract, cycle, fee, invoice_amounts, invoices, metered


def sold(sandbox: Running, **terms: Any) -> Any:
    """A contract that is pro-rated; by the calendar, if nothing else is said."""
    terms.setdefault("products", [fee(31, isCalendarAligned=True)])
    return contract(sandbox, **{"shouldProRateInvoices": True, **terms})


def amounts_of(sandbox: Running, contracts: list[Any]) -> list[list[float]]:
    """The amounts of the invoices of each of these contracts, oldest first."""
    billed = invoices(sandbox)
    return [[one["amount"] for one in billed if one["contractId"] == each["id"]] for each in contracts]


def test_a_first_cycle_that_is_short_costs_its_share_of_the_days(sandbox: Running) -> None:
    sold(sandbox, products=[fee(100, isCalendarAligned=True)])
    sandbox.advance("P2M")
    billed = invoice_amounts(sandbox)

    assert billed == [70.97, 100]  # 22 of 31 days


def test_a_short_cycle_is_not_pro_rated_by_default(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Contract, shouldProRateInvoices: defaults to false."""
    made = [sold(sandbox, shouldProRateInvoices=said) for said in (None, False)]
    sandbox.advance("P2M")
    billed = amounts_of(sandbox, made)

    assert billed == [[31, 31], [31, 31]]


SHARES = [
    (fee(310, scheduling={"billingDay": 15}), 50),  # 5 of the 31 days from 15 December on
    (fee(280, scheduling={"billingDay": 15, **cycle("Months", 3)}), 199.11),  # 64 of 90 days
    (fee(365, scheduling=cycle("Years", 1), isCalendarAligned=True), 356),
    (fee(70, scheduling=cycle("Weeks", 1), isCalendarAligned=True), 20),  # Saturday and Sunday
    (fee(70, scheduling=cycle("Days", 3), isCalendarAligned=True), 70),  # that day counts whole
    (fee(70), 70),
]


@pytest.mark.slow
def test_the_pro_rated_share_is_that_of_the_period(sandbox: Running) -> None:
    made = [sold(sandbox, products=[product]) for product, _ in SHARES]
    sandbox.advance("P12M")
    billed = amounts_of(sandbox, made)

    assert [amounts[0] for amounts in billed] == [first for _, first in SHARES]


LAST_CYCLES = [
    ("2026-03-25T12:00:00Z", 160),  # from the 10th to the 25th: 16 of 31 days
    ("2026-03-25T23:59:59Z", 160),
    ("2026-03-25T00:00:00Z", 150),  # the 25th is no day of it
    ("2026-03-10T18:00:00Z", 10),
    ("2026-04-10T11:59:59Z", 310),
    ("2026-04-10T12:00:00Z", 310),
]


def test_a_last_cycle_that_is_cut_by_the_contracts_end_costs_its_share_of_the_days(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Contract, endDate."""
    made = [
        sold(sandbox, endDate=end, autoRenewContract=False, products=[fee(310)]) for end, _ in LAST_CYCLES
    ]
    sandbox.advance("P4M")
    billed = amounts_of(sandbox, made)

    assert billed == [[310, 310, last] for _, last in LAST_CYCLES]


FEES: list[dict[str, Any]] = [
    {"products": [fee(31)]},
    {"products": [{"commitment": {"units": 10, "price": 31}}]},
    {"products": [{"commitment": {"type": "Currency", "price": 31}}]},
    {"products": [fee(11, commitment={"units": 10, "price": 20})]},
    {"productGroups": [{"baseAmount": 31}]},
    {"productGroups": [{"commitment": {"units": 10, "price": 31}}]},
    {"productGroups": [{"products": [fee(31)]}]},
    {"productGroups": [{"baseAmount": 10, "products": [fee(11), fee(10)]}]},
]


@pytest.mark.slow
def test_flat_prices_base_amounts_and_prices_of_commitments_are_pro_rated(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", ContractProduct, ProductGroup and Commitment."""
    made = []
    for terms in FEES:
        groups = [{"isCalendarAligned": True}, *terms.get("productGroups", [])]
        made.append(sold(sandbox, products=terms.get("products", []), productGroups=groups))
    sandbox.advance("P2M")
    billed = amounts_of(sandbox, made)

    assert billed == [[22, 31]] * len(FEES)


def test_a_commitment_that_is_pro_rated_includes_its_share_and_usage_is_not_pro_rated(
    sandbox: Running,
) -> None:
    """Source: spec, "Resources and their fields", Commitment. 22 of 31 days: 22 units for 11.00, of 30."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    pricing = {"type": "PerUnit", "price": 2}
    product = {"catalogProductId": calls, "pricing": pricing, "commitment": {"units": 31, "price": 15.5}}
    sold(sandbox, customer_id=acme.id, products=[{**product, "isCalendarAligned": True}])
    acme.use(30, at="2026-01-20T09:00:00Z")
    acme.use(30, at="2026-02-20T09:00:00Z")
    (consumed,) = acme.consumptions()
    sandbox.advance("P2M")
    billed = [each["revenueBreakdown"] for each in invoices(sandbox)]

    assert (consumed["provisionedAmount"], consumed["exceededAmount"]) == (22, 8)
    assert [(each["subtotal"], each["overage"]) for each in billed] == [(27, 16), (15.5, 0)]


MINIMUMS = [
    (
        {"type": "Currency", "units": 310},
        250,
        250,
    ),  # a minimum of 220.00 for 22 of 31 days, and less than is used
    ({"type": "Currency", "units": 310}, 100, 220),
    ({"type": "Currency", "price": 310}, 250, 250),
    ({"units": 31}, 31, 31),  # 22 of the units are for 22.00
    ({"units": 31}, 10, 22),
]


@pytest.mark.parametrize(("commitment", "used", "amount"), MINIMUMS)
def test_a_pro_rated_minimum_covers_no_more_than_it_costs(
    commitment: dict[str, Any], used: float, amount: float, sandbox: Running
) -> None:
    acme, calls = Customer.of(sandbox), metered(sandbox)
    product = {"catalogProductId": calls, "pricing": {"price": 1}, "commitment": commitment}
    sold(sandbox, customer_id=acme.id, products=[{**product, "isCalendarAligned": True}])
    acme.use(used, at="2026-01-20T09:00:00Z")
    sandbox.advance("P1M")

    assert invoice_amounts(sandbox) == [amount]


@pytest.mark.parametrize("other", [{"status": "InReview"}, {}])
def test_the_last_day_of_a_contract_is_charged_whatever_else_the_customer_buys(
    other: dict[str, Any], sandbox: Running
) -> None:
    """31.00 a month, from the 10th to noon of the 15th: 6 days."""
    acme = Customer.of(sandbox)
    end = {"endDate": "2026-01-15T12:00:00Z", "autoRenewContract": False}
    ending = sold(sandbox, customer_id=acme.id, products=[fee(31)], **end)
    acme.buy(fee(0), startDate="2026-01-15T13:00:00Z", **other)
    sandbox.advance("P10D")

    assert amounts_of(sandbox, [ending]) == [[6]]


def test_the_day_of_a_handover_is_charged_by_the_contract_that_goes_on(sandbox: Running) -> None:
    """A product of usage with a minimum charge of 31.00, sold by a second contract from noon on."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    product = {"catalogProductId": calls, "commitment": {"type": "Currency", "units": 31}}
    end = {"endDate": "2026-01-15T12:00:00Z", "autoRenewContract": False}
    sold(sandbox, customer_id=acme.id, products=[product], **end)
    acme.buy(product, startDate="2026-01-15T12:00:00Z", shouldProRateInvoices=True)
    sandbox.advance("P10D")

    assert invoice_amounts(sandbox) == [5]


def test_a_contract_that_sells_the_same_beside_it_does_not_change_the_fee(sandbox: Running) -> None:
    """Both sell a product of usage with a minimum charge of 31.00; the first one ends at noon of the 15th."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    product = {"catalogProductId": calls, "commitment": {"type": "Currency", "units": 31}}
    acme.buy(product)
    end = {"endDate": "2026-01-15T12:00:00Z", "autoRenewContract": False}
    ending = sold(sandbox, customer_id=acme.id, products=[product], **end)
    sandbox.advance("P10D")

    assert amounts_of(sandbox, [ending]) == [[6]]
