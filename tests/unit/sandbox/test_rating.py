"""Rating: arithmetic alone, with amounts as exact as they come.

What tiers and commitments cost is computed unit by unit in test_rating_unit_by_unit.py, and on paper in the
stories of component/sandbox/bills.toml.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from billhook.errors import SandboxError
from billhook.fields import strict_json
from billhook.resources import Commitment, ContractProduct, Discount
from billhook.sandbox.billing.new_contracts import check_product
from billhook.sandbox.billing.usage.money import ZERO
from billhook.sandbox.billing.usage.rating import (
    NO_COMMITMENT,
    Charge,
    CommitmentTerms,
    PricedUsage,
    PriceTerms,
    Tier,
    UsageAmount,
    apply_commitment,
    charge,
    commitment_terms,
    price_terms,
    price_type,
    rate,
)

amounts = st.decimals(0, 10**9, places=6)
prices = st.decimals(0, 1000, places=4)
shares = st.decimals(0, 200, places=2)


@st.composite
def tiers(draw: Any) -> tuple[Tier, ...]:
    borders = sorted(draw(st.sets(st.integers(1, 10**6), max_size=5)))
    ends: list[Decimal | None] = [Decimal(border) for border in borders]
    if not ends or draw(st.booleans()):
        ends.append(None)
    return tuple(Tier(end, draw(prices)) for end in ends)


def product(**wire: Any) -> ContractProduct:
    """A product as a contract's JSON has it."""
    return ContractProduct.from_wire(strict_json.loads(strict_json.dumps(wire)))


def rated(wire: dict[str, Any], units: str | int = 0, **facts: Any) -> Charge:
    """What a product costs, by itself, with so many units used of it."""
    sold = product(**wire)
    promise, terms = commitment_terms(sold.commitment), price_terms(sold, price_type(sold, metered=True))
    part = PricedUsage(terms=terms, units=Decimal(units), fee=terms.fee + promise.fee, **facts)
    return charge("prd", "Calls", apply_commitment([part], promise))


# --- prices ---------------------------------------------------------------------------------------


BAD_TIERS: list[Any] = [
    None,
    [],
    [7],
    [{"upTo": 10}],
    [{"upTo": 10, "price": True}],
    [{"upTo": 10, "price": 1}, {"upTo": 10, "price": 2}],
    [{"upTo": None, "price": 1}, {"upTo": 10, "price": 2}],
    [{"upTo": 0, "price": 1}],
]


def test_tiers_that_cannot_be_reckoned_with_are_refused() -> None:
    for bad in BAD_TIERS:
        sold = product(pricing={"type": "Tiered", "tiers": bad})

        with pytest.raises(SandboxError, match="tiered pricing needs tiers") as caught:
            check_product(sold, "products.0")
        assert json.loads(caught.value.body)["param"] == "products.0.pricing.tiers", bad


def test_amounts_are_exact_until_they_are_rounded() -> None:
    long = Decimal("0." + "0" * 80 + "1")
    part = PricedUsage(terms=PriceTerms(unit_price=Decimal(10**60) + long), units=Decimal(10**60))

    assert rate(part).usage == Decimal(f"1{'0' * 120}") + Decimal("1E-21")


# --- commitments ----------------------------------------------------------------------------------


def test_a_currency_commitment_without_a_price_uses_its_units_as_money() -> None:
    assert commitment_terms(Commitment(type="Currency", units=Decimal(500))).money == 500


# --- discounts ------------------------------------------------------------------------------------


TAKEN_OFF: list[tuple[dict[str, Any], str]] = [
    ({"type": "Percentage", "amount": 12.5}, "12.50"),
    ({"type": "Amount", "amount": 30}, "30"),
    ({"type": "Loyalty", "amount": 30}, "30"),
    ({"type": "Amount", "amount": 101}, "100"),
    ({"type": "Percentage", "amount": 250}, "100"),
    ({"type": "Amount", "amount": -5}, "0"),
    ({"type": "Amount"}, "0"),
]


def test_discount_is_a_share_or_an_amount_and_at_most_the_whole() -> None:
    """Source: spec, "Resources and their fields", pricing, discount: its types are our choice."""
    for discount, taken_off in TAKEN_OFF:
        made = rated({"pricing": {"type": "Flat", "price": 100, "discount": discount}})

        wanted = (100, Decimal(taken_off), 100 - Decimal(taken_off))
        assert (made.subtotal, made.discount, made.total) == wanted, discount


def test_a_discount_recurs_for_its_number_of_cycles_or_for_all() -> None:
    """Source: spec, "Resources and their fields", pricing, discount, recurring."""
    thrice = price_terms(product(pricing={"discount": {"recurring": 3}}), "Flat")
    always = price_terms(product(pricing={"discount": {}}), "Flat")
    none = price_terms(product(), "Flat")

    assert [thrice.is_discounted(before) for before in range(5)] == [True, True, True, False, False]
    assert always.is_discounted(999)
    assert none.is_discounted(0)
    assert rated({"pricing": {"price": 9, "discount": {"amount": 9}}}, 1, discounted=False).discount == 0


# --- credits, and rounding ------------------------------------------------------------------------


def test_credits_of_kind_monetary_pay_for_usage_and_not_for_fees() -> None:
    sold = {"pricing": {"type": "PerUnit", "price": 2}, "commitment": {"units": 10, "price": 15}}

    made = rated(sold, 20, covered=UsageAmount(money=Decimal(500)))

    assert (made.subtotal, made.credits_used, made.total) == (35, 20, 15)


def test_unit_credits_are_not_used_for_paid_usage() -> None:
    free = PricedUsage(terms=PriceTerms(), units=Decimal(10))
    discounted = PricedUsage(
        terms=PriceTerms(unit_price=Decimal(1), discount=Discount(type="Percentage", amount=Decimal(100))),
        units=Decimal(10),
    )
    by_money = PricedUsage(
        terms=PriceTerms(unit_price=Decimal(1)), units=Decimal(10), covered=UsageAmount(money=Decimal(10))
    )

    assert [rate(part).due.units for part in (free, discounted, by_money)] == [10, 0, 0]


@given(tiers(), amounts, amounts, shares, amounts)
def test_units_that_credits_pay_for_cost_as_if_they_were_not_used(
    by_tier: tuple[Tier, ...], units: Decimal, covered: Decimal, off: Decimal, fee: Decimal
) -> None:
    terms = PriceTerms(tiers=by_tier, discount=Discount(type="Percentage", amount=off))
    part = PricedUsage(terms=terms, units=units, fee=fee, covered=UsageAmount(units=covered))
    less = PricedUsage(terms=terms, units=max(units - covered, ZERO), fee=fee)

    told, rest = rate(part), rate(less)

    owed = part.fee + told.usage - told.discount - told.credits_used
    assert owed == less.fee + rest.usage - rest.discount


@given(tiers(), amounts, amounts, amounts, amounts)
def test_credits_used_and_money_due_add_up_to_the_usage(
    by_tier: tuple[Tier, ...], units: Decimal, promised: Decimal, by_units: Decimal, by_money: Decimal
) -> None:
    part = PricedUsage(terms=PriceTerms(tiers=by_tier), units=units, covered=UsageAmount(by_units, by_money))
    part = apply_commitment([part], CommitmentTerms(units=promised))[0]

    told = rate(part)

    assert told.credits_used + told.due.money == told.usage
    assert min(told.credits_used, told.due.money, told.due.units) >= 0
    paid_for = told.usage > 0 and told.due.money == 0
    most = ZERO if paid_for else max(units - part.included.units - by_units, ZERO)
    assert told.due.units <= most if by_money else told.due.units == most
    drawn = rate(replace(part, covered=part.covered.plus(UsageAmount(units=told.due.units))))
    assert drawn.excess == told.excess


@given(tiers(), amounts, amounts, amounts, amounts)
def test_what_credits_have_paid_beyond_the_usage_is_in_excess(
    by_tier: tuple[Tier, ...], units: Decimal, promised: Decimal, by_units: Decimal, by_money: Decimal
) -> None:
    part = PricedUsage(terms=PriceTerms(tiers=by_tier), units=units, covered=UsageAmount(by_units, by_money))
    part = apply_commitment([part], CommitmentTerms(units=promised))[0]

    told = rate(part)
    rest = replace(part, covered=part.covered.plus(told.excess, -1))

    assert rate(rest) == replace(told, excess=UsageAmount())
    assert 0 <= rest.covered.units <= max(units - part.included.units, ZERO)
    assert 0 <= rest.covered.money <= told.usage


@given(tiers(), amounts, amounts, shares, amounts)
def test_a_line_adds_up_to_the_cent(
    by_tier: tuple[Tier, ...], units: Decimal, fee: Decimal, off: Decimal, covered: Decimal
) -> None:
    terms = PriceTerms(tiers=by_tier, discount=Discount(type="Percentage", amount=off))
    part = PricedUsage(terms=terms, units=units, fee=fee, covered=UsageAmount(money=covered))

    made = charge("prd", "Calls", [part])

    assert made.total == made.subtotal - made.discount - made.credits_used
    assert min(made.subtotal, made.discount, made.overage, made.credits_used, made.total) >= 0
    for amount in (made.subtotal, made.discount, made.credits_used, made.total):
        assert amount == amount.quantize(Decimal("0.01"))


@given(prices, amounts)
def test_credits_that_pay_for_all_leave_no_cent(price: Decimal, units: Decimal) -> None:
    assume(price * units > 0)
    terms = PriceTerms(unit_price=price)
    due = rate(PricedUsage(terms=terms, units=units)).due.money

    assert (
        charge("prd", "Calls", [PricedUsage(terms=terms, units=units, covered=UsageAmount(money=due))]).total
        == 0
    )


def test_credits_that_pay_for_all_but_a_discount_leave_no_cent() -> None:
    """0.135 less 0.0135 is 0.14 less 0.01 on the invoice, and 0.1215 of credits are 0.13 there, not 0.12."""
    terms = PriceTerms(unit_price=Decimal("0.135"), discount=Discount(type="Percentage", amount=Decimal(10)))
    covered = UsageAmount(money=Decimal("0.1215"))

    made = charge("prd", "Calls", [PricedUsage(terms=terms, units=Decimal(1), covered=covered)])

    assert (made.subtotal, made.discount, made.credits_used, made.total) == (
        Decimal("0.14"), Decimal("0.01"), Decimal("0.13"), 0,
    )  # fmt: skip


@pytest.mark.parametrize(("price", "rounded"), [("0.125", "0.12"), ("0.135", "0.14"), ("0.1251", "0.13")])
def test_a_line_is_rounded_half_to_even(price: str, rounded: str) -> None:
    assert rated({"pricing": {"type": "Flat", "price": Decimal(price)}}).total == Decimal(rounded)


def test_an_empty_commitment_includes_no_usage() -> None:
    part = PricedUsage(terms=PriceTerms(unit_price=Decimal(1)), units=Decimal(5))

    assert apply_commitment([part], NO_COMMITMENT) == [part]
    assert charge("prd", "Calls", [part]).overage == 0
