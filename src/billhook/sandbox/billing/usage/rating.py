"""Rating: the terms of a product's price and commitment, and the price of its usage.

Pure arithmetic; amounts are exact until a line item is rounded. Source: spec, "Resources and their fields",
ContractProduct and Commitment. The tiers are not shown: `tiers` is the sandbox's own, in pricing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import ROUND_DOWN, Decimal, localcontext
from typing import Any, NamedTuple

from billhook.resources import Commitment, ContractProduct, CreditGrant, Discount, Pricing
from billhook.sandbox.billing.usage.money import EXACT, ZERO, clamp, is_number

_CENT = Decimal("0.01")
_UNIT_PRECISION = Decimal("1E-10")
"""The precision of the units that an amount of money pays for: most quotients have no last digit."""
AMOUNTS = ("subtotal", "discount", "overage", "credits_used")
"""The names of a charge's amounts of money; its total follows from them."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A price for each unit up to and including `up_to`; None for all further units."""

    up_to: Decimal | None
    price: Decimal


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """A fee for each cycle, and the price of usage: by tiers if there are any, else by the unit."""

    fee: Decimal = ZERO
    unit_price: Decimal = ZERO
    tiers: tuple[Tier, ...] = ()
    discount: Discount | None = None
    is_flat: bool = False
    """True if the fee pays for all usage."""

    def is_discounted(self, cycles_before: int) -> bool:
        """Return whether the cycle after `cycles_before` others still has the discount."""
        recurring = None if self.discount is None else self.discount.recurring
        return recurring is None or cycles_before < recurring


@dataclass(frozen=True, slots=True)
class CommitmentTerms:
    """A commitment: usage, in units or in money, that each cycle's `fee` includes."""

    units: Decimal = ZERO
    money: Decimal = ZERO
    fee: Decimal = ZERO
    in_money: bool = False
    blocks: bool = False
    """Beyond it access is blocked, so nothing is billed."""

    @property
    def exists(self) -> bool:
        return self.units > 0 or self.money > 0


NO_COMMITMENT = CommitmentTerms()


def price_type(product: ContractProduct, *, metered: bool) -> str:
    """Return the type of a product's price: if it names none, PerUnit with a meter, else Flat."""
    return (product.pricing and product.pricing.type) or ("PerUnit" if metered else "Flat")


def price_terms(product: ContractProduct, agreed_type: str) -> PriceTerms:
    """Return the price of `product`, of the type that was agreed."""
    pricing = product.pricing or Pricing()
    price = clamp(pricing.price or ZERO)
    tiers = read_tiers(pricing) if agreed_type == "Tiered" else ()
    if agreed_type == "Flat":
        return PriceTerms(fee=price, discount=pricing.discount, is_flat=True)
    return PriceTerms(unit_price=price, tiers=tiers or (), discount=pricing.discount)


def commitment_terms(commitment: Commitment | None) -> CommitmentTerms:
    """Return the commitment; NO_COMMITMENT without one."""
    if commitment is None:
        return NO_COMMITMENT
    units, price = clamp(commitment.units or ZERO), clamp(commitment.price or ZERO)
    blocks = commitment.overage_strategy == "Block"
    if commitment.type == "Currency":
        # Without a price, the committed amount of money is also what it costs.
        money = units if commitment.price is None else price
        return CommitmentTerms(money=max(money, ZERO), fee=money, in_money=True, blocks=blocks)
    return CommitmentTerms(units=max(units, ZERO), fee=price, blocks=blocks)


def read_tiers(pricing: Pricing) -> tuple[Tier, ...] | None:
    """Return the tiers, or None if they are invalid.

    The field is not in the specification, so no model validates it.
    """
    value = (pricing.model_extra or {}).get("tiers")
    tiers: list[Tier] = []
    for each in value if isinstance(value, list) else ():
        if not isinstance(each, Mapping):
            return None
        up_to, price = each.get("upTo"), each.get("price")
        below = tiers[-1].up_to if tiers else ZERO
        # `below` is None after a tier without end: nothing can follow it.
        if not is_number(price) or price < 0 or below is None:
            return None
        if up_to is not None and not (is_number(up_to) and up_to > below):
            return None
        end = None if up_to is None else clamp(Decimal(up_to))
        tiers.append(Tier(end, clamp(Decimal(price))))
    return tuple(tiers) or None


class UsageAmount(NamedTuple):
    """An amount of a product's usage, exactly: in units, and in money."""

    units: Decimal = ZERO
    money: Decimal = ZERO

    def plus(self, other: UsageAmount, sign: int = 1) -> UsageAmount:
        """Return the sum, or with the `sign` -1 the difference."""
        with localcontext(EXACT):
            return UsageAmount(self.units + sign * other.units, self.money + sign * other.money)


NO_USAGE = UsageAmount()


@dataclass(frozen=True, slots=True)
class Charge:
    """A line item's amounts of money, rounded half-even."""

    product_id: str
    product_name: str
    units: Decimal
    """Used in the cycle."""
    subtotal: Decimal
    """Fees, commitments and usage."""
    discount: Decimal = ZERO
    overage: Decimal = ZERO
    """The part of `subtotal` for usage beyond a commitment."""
    credits_used: Decimal = ZERO
    exceeded: bool = False
    """True if more was used than the commitment includes, even where that is free of charge."""
    issued_separately: bool = False
    """pricing.issuedSeparately: the charge gets an invoice of its own."""
    line_key: str | None = None
    """The contract's line that it is for; None for credits and for amounts that are carried forward."""
    cycle: tuple[datetime, datetime] | None = None
    """Start and end of the billing cycle of that line."""
    last_days: tuple[str, ...] = ()
    """Of which products and groups it charges the day on which the contract ends, by their product ids."""
    unpaid: Mapping[str, UsageAmount] = field(default_factory=dict)
    """What of the usage is left to invoices, by product key: credits that are granted later do not pay it."""

    @property
    def total(self) -> Decimal:
        """What is to be paid; below zero only if a price is."""
        with localcontext(EXACT):
            return self.subtotal - self.discount - self.credits_used

    def plus(self, other: Charge) -> Charge:
        """Return this charge with the amounts of `other`."""
        return replace(self, **self._combined(other, 1), exceeded=self.exceeded or other.exceeded)

    def minus(self, billed: Charge) -> Charge:
        """Return what is left to charge after `billed`; `exceeded` only if `billed` was not."""
        return replace(self, **self._combined(billed, -1), exceeded=self.exceeded and not billed.exceeded)

    def _combined(self, other: Charge, sign: int) -> dict[str, Any]:
        with localcontext(EXACT):
            unpaid = dict(self.unpaid)
            for key, more in other.unpaid.items():
                unpaid[key] = unpaid.get(key, NO_USAGE).plus(more, sign)
            names = ("units", *AMOUNTS)
            figures = {name: getattr(self, name) + sign * getattr(other, name) for name in names}
        return {**figures, "unpaid": unpaid}

    @property
    def is_zero(self) -> bool:
        """True if the charge has neither units nor money."""
        return not self.units and not any(getattr(self, name) for name in AMOUNTS)


@dataclass(frozen=True, slots=True)
class PricedUsage:
    """A product's usage in a cycle, with its price terms and what need not be paid any more."""

    terms: PriceTerms
    units: Decimal
    """Used in the cycle; if the commitment spans several cycles, since its period began."""
    fee: Decimal = ZERO
    """Charged for the cycle, independent of usage."""
    commitment: CommitmentTerms = NO_COMMITMENT
    """The commitment that includes its usage: the product's own, or its group's."""
    included: UsageAmount = NO_USAGE
    """The part of its usage that the commitment includes."""
    units_before: Decimal = ZERO
    """The part of `units` used in earlier cycles of the commitment's period."""
    billed: UsageAmount = NO_USAGE
    """The part of `units_before` that was beyond the commitment, and its price."""
    covered: UsageAmount = NO_USAGE
    """Paid for by credits that were drawn."""
    invoiced: UsageAmount = NO_USAGE
    """On an invoice: no credits are drawn for it any more."""
    discounted: bool = True
    """True if the discount applies to this cycle."""

    def unpaid(self) -> UsageAmount:
        """Return what invoices have to charge: what they have already, and what no credits were drawn for."""
        return self.invoiced.plus(rate(self).due)


@dataclass(frozen=True, slots=True)
class RatedUsage:
    """The exact price of a product's usage in a cycle."""

    fee: Decimal
    usage: Decimal
    """The price of usage beyond the commitment; of all usage without one."""
    discount: Decimal
    credits_used: Decimal
    due: UsageAmount
    """Units for which credits of kind Unit can still be drawn, and the part of `usage` that those of kind
    Monetary can still pay; otherwise it is invoiced."""
    excess: UsageAmount = NO_USAGE
    """What credits have paid for usage that is not there any more."""


def usage_price(terms: PriceTerms, units: Decimal) -> Decimal:
    """Return the price of a cycle's first `units`.

    Tiers are graduated, and include `up_to`: each unit costs the price of its own tier. Units beyond the last
    tier cost that tier's price.
    """
    return sum((count * price for count, price in _units_by_price(terms, units)), ZERO)


def units_beyond(products: Sequence[PricedUsage]) -> Decimal:
    """Return how many units of this cycle are beyond the commitment that these products share."""
    with localcontext(EXACT):
        return sum(
            (each.units - _included_units(each, each.units) - each.billed.units for each in products), ZERO
        )


def apply_commitment(products: Sequence[PricedUsage], committed: CommitmentTerms) -> list[PricedUsage]:
    """Spread a commitment over the products that share it, in their order, until it is used up."""
    with localcontext(EXACT):
        now = _spread(products, committed, [product.units for product in products])
        if not any(product.units_before for product in products):
            return now
        # The commitment covers the period's first units, so earlier cycles are spread again and subtracted.
        before = _spread(products, committed, [product.units_before for product in products])
        return [
            replace(
                product,
                billed=UsageAmount(
                    product.units_before - _included_units(earlier, product.units_before),
                    _price_beyond_commitment(earlier, product.units_before),
                ),
            )
            for product, earlier in zip(now, before, strict=True)
        ]


def rate(product: PricedUsage) -> RatedUsage:
    """Return the price of a product's usage.

    The discount is taken off the fee first, and is never more than the price.
    """
    with localcontext(EXACT):
        usage = max(_price_beyond_commitment(product, product.units) - product.billed.money, ZERO)
        discount = _discount(product, usage)
        due = product.fee + usage - discount
        # Credits pay for usage, never for fees; and not for what the discount has taken off.
        coverable = max(min(usage, due), ZERO)
        # Credits pay for the last units: the rest is rated as if those had not been used.
        included = _included_units(product, product.units)
        uncovered = _price_beyond_commitment(product, max(product.units - product.covered.units, included))
        rest = max(uncovered - product.billed.money, ZERO)
        # What the units paid for by credits of kind Unit are worth, including their share of the discount.
        by_units = due - (product.fee + rest - _discount(product, rest))
        due_money = max(coverable - by_units - product.covered.money - product.invoiced.money, ZERO)
        no_units = product.terms.is_flat or product.commitment.blocks
        billable = ZERO if no_units else max(product.units - included - product.billed.units, ZERO)
        due_units = max(billable - product.covered.units - product.invoiced.units, ZERO)
        # Units at a price of 0 are drawn from credits of kind Unit; those that are paid for are not.
        if usage > 0 and due_money == 0:
            due_units = ZERO
        elif product.covered.money or product.invoiced.money:
            due_units = min(due_units, _last_units(product, product.units - product.covered.units, due_money))
        return RatedUsage(
            fee=product.fee,
            usage=usage,
            discount=discount,
            credits_used=min(coverable, by_units + product.covered.money),
            due=UsageAmount(due_units, due_money),
            excess=UsageAmount(
                max(product.covered.units - billable, ZERO),
                max(product.covered.money - max(coverable - by_units, ZERO), ZERO),
            ),
        )


def priced_commitment(commitment: Commitment | None, terms: PriceTerms) -> CommitmentTerms:
    """Return the commitment; committed units without a price of their own cost the price of `terms`."""
    committed = commitment_terms(commitment)
    if commitment is None or commitment.price is not None or committed.in_money:
        return committed
    with localcontext(EXACT):
        return replace(committed, fee=clamp(usage_price(terms, committed.units)))


def charge(
    product_id: str,
    product_name: str,
    products: Sequence[PricedUsage],
    fee: Decimal = ZERO,
    *,
    smallest: Decimal = _CENT,
) -> Charge:
    """Return the line item for these products, with an additional `fee` of a commitment or a group.

    Amounts are rounded to multiples of `smallest`, which is a power of ten.
    """
    with localcontext(EXACT):
        rated = [rate(product) for product in products]
        subtotal = sum((each.fee + each.usage for each in rated), fee)
        discount = sum((each.discount for each in rated), ZERO)
        credits_used = sum((each.credits_used for each in rated), ZERO)
        beyond = [
            each.usage for each, product in zip(rated, products, strict=True) if product.commitment.exists
        ]
        # Each amount is rounded by itself and the total is their difference, so a line item always adds up.
        before_credits = subtotal.quantize(smallest) - discount.quantize(smallest)
        paid_by_credits = min(credits_used.quantize(smallest), max(before_credits, ZERO.quantize(smallest)))
        if subtotal - discount == credits_used > 0:
            # Credits that pay for everything must leave no cent, however the three amounts were rounded.
            paid_by_credits = before_credits
        return Charge(
            product_id=product_id,
            product_name=product_name,
            units=sum((product.units - product.units_before for product in products), ZERO),
            subtotal=subtotal.quantize(smallest),
            discount=discount.quantize(smallest),
            overage=sum(beyond, ZERO).quantize(smallest),
            credits_used=paid_by_credits,
        )


def credit_charge(credit_grant: CreditGrant, smallest: Decimal) -> Charge:
    """Return the line item for credits that are sold."""
    name = credit_grant.name or "Credits"
    with localcontext(EXACT):
        price = (credit_grant.price or ZERO).quantize(smallest)
    return Charge(credit_grant.credit_product_id or name, name, credit_grant.grant_amount or ZERO, price)


def _discount(product: PricedUsage, usage: Decimal) -> Decimal:
    """Return the discount on fee and usage: a percentage or an amount, and at most all of it."""
    discount, subtotal = product.terms.discount, product.fee + usage
    if discount is None or subtotal <= 0 or not product.discounted:
        return ZERO
    # A negative discount would raise the price.
    amount = max(clamp(discount.amount or ZERO), ZERO)
    if discount.type == "Percentage":
        amount = subtotal * amount.scaleb(-2)
    return min(amount, subtotal)


def _spread(
    products: Sequence[PricedUsage], committed: CommitmentTerms, used: Sequence[Decimal]
) -> list[PricedUsage]:
    units, money = committed.units, committed.money
    spread = []
    for product, each in zip(products, used, strict=True):
        of_units = min(units, each)
        # A negative price must not enlarge the commitment for the other products.
        of_money = min(money, max(usage_price(product.terms, each), ZERO))
        units, money = units - of_units, money - of_money
        spread.append(replace(product, commitment=committed, included=UsageAmount(of_units, of_money)))
    return spread


def _included_units(product: PricedUsage, units: Decimal) -> Decimal:
    """Return how many of the cycle's first `units` the commitment includes, of units or of money."""
    if not product.commitment.in_money:
        return product.included.units
    included, money = ZERO, product.included.money
    for count, price in _units_by_price(product.terms, units):
        if count * price > money:
            # Rounded down: credits that pay for the other units must leave nothing to pay.
            return included + (money / price).quantize(_UNIT_PRECISION, ROUND_DOWN)
        included, money = included + count, money - count * price
    return included


def _units_by_price(terms: PriceTerms, units: Decimal) -> Iterator[tuple[Decimal, Decimal]]:
    """Yield how many of a cycle's first `units` cost which price, in their order."""
    below = ZERO
    for tier in terms.tiers or (Tier(None, terms.unit_price),):
        upper = units if tier.up_to is None else min(units, tier.up_to)
        if upper > below:
            yield upper - below, tier.price
            below = upper
    if units > below:
        yield units - below, terms.tiers[-1].price


def _last_units(product: PricedUsage, units: Decimal, money: Decimal) -> Decimal:
    """Return how many of the last of the first `units` units cost no more than `money`."""
    found, discount = ZERO, product.terms.discount if product.discounted else None
    percentage = discount.amount if discount is not None and discount.type == "Percentage" else None
    for count, price in reversed(list(_units_by_price(product.terms, units))):
        # An amount is taken off what the first units cost.
        cost = price * (1 - clamp(percentage or ZERO).scaleb(-2))
        if count * cost > money:
            # Rounded down: more would be paid than is due.
            return found + (money / cost).quantize(_UNIT_PRECISION, ROUND_DOWN)
        found, money = found + count, money - count * cost
    return found


def _price_beyond_commitment(product: PricedUsage, units: Decimal) -> Decimal:
    if product.commitment.blocks:
        return ZERO
    included = usage_price(product.terms, product.included.units)
    return max(usage_price(product.terms, units) - included - product.included.money, ZERO)
