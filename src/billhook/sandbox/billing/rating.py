"""What usage costs: arithmetic alone. Amounts are exact until a line item is rounded to the cent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext

from billhook.sandbox.billing.exact import EXACT, ZERO
from billhook.sandbox.billing.terms import NOTHING_PROMISED, Promise, Terms

__all__ = ["Charge", "Part", "Rated", "charge", "include", "rate", "usage_price"]

_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Charge:
    """A line item: amounts of money, rounded to two places half-even; `total` is what is to be paid."""

    product_id: str
    product_name: str
    units: Decimal
    """Used in the cycle."""
    subtotal: Decimal
    """For everything: fees, commitments, usage."""
    discount: Decimal
    overage: Decimal
    """The part of `subtotal` that is for usage beyond a commitment."""
    credits_used: Decimal
    total: Decimal
    """subtotal - discount - credits_used: below zero only where a price is."""
    issued_separately: bool = False
    """pricing.issuedSeparately: it wants an invoice of its own."""


@dataclass(frozen=True, slots=True)
class Part:
    """A product in a cycle: its terms, its usage, and what of that need not be paid for any more."""

    terms: Terms
    units: Decimal
    fee: Decimal = ZERO
    """For the cycle, whatever is used."""
    promise: Promise = NOTHING_PROMISED
    """The commitment that its usage counts against: its own, or that of its group."""
    included_units: Decimal = ZERO
    """What of its usage the commitment includes."""
    included_money: Decimal = ZERO
    covered_units: Decimal = ZERO
    """What credits have been drawn for."""
    covered_money: Decimal = ZERO
    discounted: bool = True
    """Is the cycle one of those that have the discount?"""

    def covered(self, amount: Decimal, *, by_units: bool) -> Part:
        """The same with so many more credits drawn for it."""
        with localcontext(EXACT):
            if by_units:
                return replace(self, covered_units=self.covered_units + amount)
            return replace(self, covered_money=self.covered_money + amount)


@dataclass(frozen=True, slots=True)
class Rated:
    """What a part costs, exactly."""

    fee: Decimal
    usage: Decimal
    """For what is beyond the commitment, or for all where there is none."""
    discount: Decimal
    credits_used: Decimal
    due_units: Decimal
    """Usage for which credits of kind Unit may still be drawn."""
    due_money: Decimal
    """What is left of `usage` to be drawn from credits of kind Monetary, or else to be paid."""


def usage_price(terms: Terms, units: Decimal) -> Decimal:
    """The price of a cycle's first `units`.

    Graduated: each unit costs what the tier it lies in says; those beyond the last, as in the last.
    """
    if not terms.tiers:
        return terms.unit_price * units
    price, below = ZERO, ZERO
    for tier in terms.tiers:
        upper = units if tier.up_to is None else min(units, tier.up_to)
        if upper > below:
            price += tier.price * (upper - below)
            below = upper
    return price + terms.tiers[-1].price * (units - below if units > below else ZERO)


def include(parts: Sequence[Part], promise: Promise) -> list[Part]:
    """Spread a commitment over the products that share it: over the first of them as far as it goes."""
    with localcontext(EXACT):
        units, money = promise.units, promise.money
        spread = []
        for part in parts:
            of_units = min(units, part.units)
            of_money = min(money, max(usage_price(part.terms, part.units), ZERO))
            units, money = units - of_units, money - of_money
            spread.append(replace(part, promise=promise, included_units=of_units, included_money=of_money))
        return spread


def rate(part: Part) -> Rated:
    """What `part` costs; its discount is taken off its fee first, and never more than there is."""
    with localcontext(EXACT):
        usage = _beyond(part, part.units)
        discount = _discount(part, usage)
        due = part.fee + usage - discount
        coverable = max(min(usage, due), ZERO)
        # Units that credits have paid for are the last ones: what remains is rated as if they were not used.
        rest = _beyond(part, max(part.units - part.covered_units, part.included_units))
        by_units = due - (part.fee + rest - _discount(part, rest))
        due_money = max(coverable - by_units - part.covered_money, ZERO)
        paid_for = usage > 0 and due_money == 0  # what costs nothing by its price is drawn all the same
        no_units = paid_for or part.promise.blocks or part.promise.in_money
        billable = ZERO if no_units else part.units - part.included_units
        return Rated(
            fee=part.fee,
            usage=usage,
            discount=discount,
            credits_used=min(coverable, by_units + part.covered_money),
            due_units=max(billable - part.covered_units, ZERO),
            due_money=due_money,
        )


def charge(product_id: str, product_name: str, parts: Sequence[Part], fee: Decimal = ZERO) -> Charge:
    """The line item for these products; `fee` is what is charged besides, for a commitment or a group."""
    with localcontext(EXACT):
        rated = [rate(part) for part in parts]
        subtotal = sum((each.fee + each.usage for each in rated), fee)
        discount = sum((each.discount for each in rated), ZERO)
        credits_used = sum((each.credits_used for each in rated), ZERO)
        promised = [each.usage for each, part in zip(rated, parts, strict=True) if part.promise.is_made]
        before_credits = _cents(subtotal) - _cents(discount)
        paid_by_credits = min(_cents(credits_used), max(before_credits, ZERO))
        if subtotal - discount == credits_used > 0:
            # Credits that pay for all of it leave no cent, whichever way the three were rounded.
            paid_by_credits = before_credits
        return Charge(
            product_id=product_id,
            product_name=product_name,
            units=sum((part.units for part in parts), ZERO),
            subtotal=_cents(subtotal),
            discount=_cents(discount),
            overage=_cents(sum(promised, ZERO)),
            credits_used=paid_by_credits,
            total=before_credits - paid_by_credits,
        )


def _discount(part: Part, usage: Decimal) -> Decimal:
    return part.terms.discount_on(part.fee + usage) if part.discounted else ZERO


def _beyond(part: Part, units: Decimal) -> Decimal:
    if part.promise.blocks:
        return ZERO
    included = usage_price(part.terms, part.included_units)
    return max(usage_price(part.terms, units) - included - part.included_money, ZERO)


def _cents(amount: Decimal) -> Decimal:
    return amount.quantize(_CENT)
