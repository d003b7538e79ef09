"""Prices and commitments of a contract's products, in the form that `rating` calculates with.

Source: spec, "Resources and their fields", ContractProduct and Commitment. Their enumerations and the tiers
are not shown: `tiers` is the sandbox's own, in pricing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeGuard

from billhook.resources import Commitment, ContractProduct, Discount, Pricing
from billhook.sandbox.billing.money import ZERO, clamp
from billhook.sandbox.errors import invalid_request


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

    def discount_on(self, subtotal: Decimal) -> Decimal:
        """Return the discount on `subtotal`: a percentage or an amount, and at most all of it."""
        if self.discount is None or subtotal <= 0:
            return ZERO
        # A negative discount would raise the price.
        amount = max(clamp(self.discount.amount or ZERO), ZERO)
        if self.discount.type == "Percentage":
            amount = subtotal * amount.scaleb(-2)
        return min(amount, subtotal)

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
PRICING_TYPES = ("Flat", "PerUnit", "Tiered")
DISCOUNT_TYPES = ("Amount", "Percentage")
COMMITMENT_TYPES = ("Currency", "Units")
OVERAGE_STRATEGIES = ("Bill", "Block")


def price_terms(product: ContractProduct, *, metered: bool) -> PriceTerms:
    """Return the price of `product`. Without a type it is PerUnit if metered, else Flat."""
    pricing = product.pricing or Pricing()
    price = clamp(pricing.price or ZERO)
    tiers = _tiers(pricing) if pricing.type == "Tiered" else ()
    if (pricing.type or ("PerUnit" if metered else "Flat")) == "Flat":
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


def check_product(product: ContractProduct, where: str) -> None:
    """Reject invalid tiers and unknown types; `where` is the product's path in the request."""
    pricing = product.pricing or Pricing()
    check_one_of(pricing.type, PRICING_TYPES, f"{where}.pricing.type")
    if pricing.discount is not None:
        check_one_of(pricing.discount.type, DISCOUNT_TYPES, f"{where}.pricing.discount.type")
        _refuse_negative(pricing.discount.amount, f"{where}.pricing.discount.amount")
        _refuse_negative(pricing.discount.recurring, f"{where}.pricing.discount.recurring")
    check_commitment(product.commitment, where)
    if pricing.type != "Flat":  # a flat price may be a rebate
        _refuse_negative(pricing.price, f"{where}.pricing.price")
    tiers = (pricing.model_extra or {}).get("tiers")
    if isinstance(tiers, list) and tiers and pricing.type != "Tiered":
        raise invalid_request(
            "tiers are for pricing of the type Tiered: set pricing.type, or leave the tiers out",
            f"{where}.pricing.tiers",
        )
    if pricing.type == "Tiered" and not _tiers(pricing):
        raise invalid_request(
            "tiered pricing needs tiers: a list of {upTo, price} with rising upTo, null in the last only; "
            "prices must not be negative",
            f"{where}.pricing.tiers",
        )


def check_commitment(commitment: Commitment | None, where: str) -> None:
    """Reject a commitment of an unknown type; `where` is the path of the product or group that has it."""
    if commitment is not None:
        check_one_of(commitment.type, COMMITMENT_TYPES, f"{where}.commitment.type")
        check_one_of(commitment.overage_strategy, OVERAGE_STRATEGIES, f"{where}.commitment.overageStrategy")
        _refuse_negative(commitment.units, f"{where}.commitment.units")


def _refuse_negative(number: Decimal | int | None, where: str) -> None:
    if number is not None and number < 0:
        raise invalid_request(f"{where.rpartition('.')[2]} is {number}: it must not be negative", where)


def check_one_of(value: str | None, known: Sequence[str], param: str) -> None:
    """Reject an unknown value of a field that prices depend on; None means the default."""
    # An unknown value would be billed by a default that the user did not mean.
    if value is not None and value not in known:
        raise invalid_request(f"{param.rpartition('.')[2]} must be one of {', '.join(known)}", param)


def _tiers(pricing: Pricing) -> tuple[Tier, ...] | None:
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
        if not _is_number(price) or price < 0 or below is None:
            return None
        if up_to is not None and not (_is_number(up_to) and up_to > below):
            return None
        end = None if up_to is None else clamp(Decimal(up_to))
        tiers.append(Tier(end, clamp(Decimal(price))))
    return tuple(tiers) or None


def _is_number(value: object) -> TypeGuard[int | Decimal]:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)
