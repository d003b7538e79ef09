"""What usage costs: arithmetic alone. Amounts are exact until a line item is rounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext

from billhook.resources import Commitment
from billhook.sandbox.billing.exact import EXACT, ZERO, bounded
from billhook.sandbox.billing.terms import NOTHING_PROMISED, Promise, Terms, promise_of

__all__ = [
    "CENT",
    "FIGURES",
    "Charge",
    "Part",
    "Rated",
    "charge",
    "include",
    "promised",
    "rate",
    "usage_price",
]

CENT = Decimal("0.01")
FIGURES = ("units", "subtotal", "discount", "overage", "credits_used", "total")
"""The numbers of a charge."""


@dataclass(frozen=True, slots=True)
class Charge:
    """A line item: amounts of money, rounded half-even; `total` is what is to be paid."""

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
    exceeded: bool = False
    """Was more used than was provisioned, whether that costs anything or not?"""
    issued_separately: bool = False
    """pricing.issuedSeparately: it wants an invoice of its own."""

    def less(self, billed: Charge) -> Charge:
        """What is still to be charged where `billed` was; `exceeded` if that was not."""
        with localcontext(EXACT):
            left = {name: getattr(self, name) - getattr(billed, name) for name in FIGURES}
        return replace(self, **left, exceeded=self.exceeded and not billed.exceeded)

    @property
    def is_nothing(self) -> bool:
        """Has it neither units nor money?"""
        return not any(getattr(self, name) for name in FIGURES)


@dataclass(frozen=True, slots=True)
class Part:
    """A product in a cycle: its terms, its usage, and what of that need not be paid for any more."""

    terms: Terms
    units: Decimal
    """Used in the cycle; with a commitment that is for several, since its period began."""
    fee: Decimal = ZERO
    """For the cycle, whatever is used."""
    promise: Promise = NOTHING_PROMISED
    """The commitment that its usage counts against: its own, or that of its group."""
    included_units: Decimal = ZERO
    """What of its usage the commitment includes."""
    included_money: Decimal = ZERO
    units_before: Decimal = ZERO
    """Those of `units` that earlier cycles of the commitment's period had."""
    billed_units: Decimal = ZERO
    """Those of them that were beyond the commitment."""
    billed_money: Decimal = ZERO
    """What these were charged with."""
    covered_units: Decimal = ZERO
    """What credits have been drawn for."""
    covered_money: Decimal = ZERO
    invoiced_units: Decimal = ZERO
    """What was left to an invoice: no credits are drawn for it any more."""
    invoiced_money: Decimal = ZERO
    discounted: bool = True
    """Is the cycle one of those that have the discount?"""

    def covered(self, amount: Decimal, *, by_units: bool) -> Part:
        """The same with so many more credits drawn for it."""
        with localcontext(EXACT):
            if by_units:
                return replace(self, covered_units=self.covered_units + amount)
            return replace(self, covered_money=self.covered_money + amount)

    def invoiced(self) -> Part:
        """The same with what is still due left to an invoice."""
        due = rate(self)
        with localcontext(EXACT):
            return replace(
                self,
                invoiced_units=self.invoiced_units + due.due_units,
                invoiced_money=self.invoiced_money + due.due_money,
            )


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
        now = _spread(parts, promise, [part.units for part in parts])
        if not any(part.units_before for part in parts):
            return now
        before = _spread(parts, promise, [part.units_before for part in parts])
        return [
            replace(
                part,
                billed_units=part.units_before - earlier.included_units,
                billed_money=_beyond(earlier, part.units_before),
            )
            for part, earlier in zip(now, before, strict=True)
        ]


def rate(part: Part) -> Rated:
    """What `part` costs; its discount is taken off its fee first, and never more than there is."""
    with localcontext(EXACT):
        usage = max(_beyond(part, part.units) - part.billed_money, ZERO)
        discount = _discount(part, usage)
        due = part.fee + usage - discount
        coverable = max(min(usage, due), ZERO)
        # Units that credits have paid for are the last ones: what remains is rated as if they were not used.
        uncovered = _beyond(part, max(part.units - part.covered_units, part.included_units))
        rest = max(uncovered - part.billed_money, ZERO)
        by_units = due - (part.fee + rest - _discount(part, rest))
        due_money = max(coverable - by_units - part.covered_money - part.invoiced_money, ZERO)
        paid_for = usage > 0 and due_money == 0  # what costs nothing by its price is drawn all the same
        no_units = paid_for or part.promise.blocks or part.promise.in_money
        billable = ZERO if no_units else part.units - part.included_units - part.billed_units
        return Rated(
            fee=part.fee,
            usage=usage,
            discount=discount,
            credits_used=min(coverable, by_units + part.covered_money),
            due_units=max(billable - part.covered_units - part.invoiced_units, ZERO),
            due_money=due_money,
        )


def promised(commitment: Commitment | None, terms: Terms) -> Promise:
    """What is promised; units without a price cost what they do by `terms`."""
    promise = promise_of(commitment)
    if commitment is None or commitment.price is not None or promise.in_money:
        return promise
    with localcontext(EXACT):
        return replace(promise, fee=bounded(usage_price(terms, promise.units)))


def charge(
    product_id: str,
    product_name: str,
    parts: Sequence[Part],
    fee: Decimal = ZERO,
    *,
    smallest: Decimal = CENT,
) -> Charge:
    """The line item for these products; `fee` is what is charged besides, for a commitment or a group.

    Amounts are rounded to multiples of `smallest`, which is a power of ten.
    """
    with localcontext(EXACT):
        rated = [rate(part) for part in parts]
        subtotal = sum((each.fee + each.usage for each in rated), fee)
        discount = sum((each.discount for each in rated), ZERO)
        credits_used = sum((each.credits_used for each in rated), ZERO)
        beyond = [each.usage for each, part in zip(rated, parts, strict=True) if part.promise.is_made]
        before_credits = subtotal.quantize(smallest) - discount.quantize(smallest)
        paid_by_credits = min(credits_used.quantize(smallest), max(before_credits, ZERO.quantize(smallest)))
        if subtotal - discount == credits_used > 0:
            # Credits that pay for all of it leave no cent, whichever way the three were rounded.
            paid_by_credits = before_credits
        return Charge(
            product_id=product_id,
            product_name=product_name,
            units=sum((part.units - part.units_before for part in parts), ZERO),
            subtotal=subtotal.quantize(smallest),
            discount=discount.quantize(smallest),
            overage=sum(beyond, ZERO).quantize(smallest),
            credits_used=paid_by_credits,
            total=before_credits - paid_by_credits,
        )


def _discount(part: Part, usage: Decimal) -> Decimal:
    return part.terms.discount_on(part.fee + usage) if part.discounted else ZERO


def _spread(parts: Sequence[Part], promise: Promise, used: Sequence[Decimal]) -> list[Part]:
    units, money = promise.units, promise.money
    spread = []
    for part, each in zip(parts, used, strict=True):
        of_units = min(units, each)
        of_money = min(money, max(usage_price(part.terms, each), ZERO))
        units, money = units - of_units, money - of_money
        spread.append(replace(part, promise=promise, included_units=of_units, included_money=of_money))
    return spread


def _beyond(part: Part, units: Decimal) -> Decimal:
    if part.promise.blocks:
        return ZERO
    included = usage_price(part.terms, part.included_units)
    return max(usage_price(part.terms, units) - included - part.included_money, ZERO)
