"""What a contract says of a product's price, read so that it can be reckoned with.

Source: spec, "Resources and their fields", ContractProduct and Commitment. Their enumerations and the tiers
are not shown: `tiers` is the sandbox's own, in pricing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeGuard

from billhook.resources import Commitment, ContractProduct, Discount, Pricing
from billhook.sandbox.billing.exact import ZERO, bounded
from billhook.sandbox.refusals import invalid_request

__all__ = [
    "COMMITMENT_TYPES",
    "DISCOUNT_TYPES",
    "NOTHING_PROMISED",
    "OVERAGE_STRATEGIES",
    "PRICING_TYPES",
    "Promise",
    "Terms",
    "Tier",
    "check",
    "check_commitment",
    "check_one_of",
    "promise_of",
    "terms_of",
]


@dataclass(frozen=True, slots=True)
class Tier:
    """Units up to and including `up_to` (None: all the rest) at `price` each."""

    up_to: Decimal | None
    price: Decimal


@dataclass(frozen=True, slots=True)
class Terms:
    """Money for a cycle (`fee`) and for its usage: by tiers if there are any, else so much for each unit."""

    fee: Decimal = ZERO
    unit_price: Decimal = ZERO
    tiers: tuple[Tier, ...] = ()
    discount: Discount | None = None

    def discount_on(self, subtotal: Decimal) -> Decimal:
        """What is taken off: a part of `subtotal`, or an amount, and at most all of it."""
        if self.discount is None or subtotal <= 0:
            return ZERO
        amount = max(bounded(self.discount.amount or ZERO), ZERO)
        if self.discount.type == "Percentage":
            amount = subtotal * amount.scaleb(-2)
        return min(amount, subtotal)

    def is_discounted(self, cycles_before: int) -> bool:
        """Has the cycle after so many others the discount, too?"""
        recurring = None if self.discount is None else self.discount.recurring
        return recurring is None or cycles_before < recurring


@dataclass(frozen=True, slots=True)
class Promise:
    """A commitment: usage that is included for `fee` in each cycle, in units or in money."""

    units: Decimal = ZERO
    money: Decimal = ZERO
    fee: Decimal = ZERO
    in_money: bool = False
    blocks: bool = False
    """Beyond it there is no access, and nothing is billed."""

    @property
    def is_made(self) -> bool:
        return self.units > 0 or self.money > 0


NOTHING_PROMISED = Promise()
PRICING_TYPES = ("Flat", "PerUnit", "Tiered")
DISCOUNT_TYPES = ("Amount", "Percentage")
COMMITMENT_TYPES = ("Currency", "Units")
OVERAGE_STRATEGIES = ("Bill", "Block")


def terms_of(product: ContractProduct, *, metered: bool) -> Terms:
    """The price of `product`. Without a type: by the unit if it is metered, else by cycle."""
    pricing = product.pricing or Pricing()
    price = bounded(pricing.price or ZERO)
    tiers = _tiers(pricing) if pricing.type == "Tiered" else ()
    if (pricing.type or ("PerUnit" if metered else "Flat")) == "Flat":
        return Terms(fee=price, discount=pricing.discount)
    return Terms(unit_price=price, tiers=tiers or (), discount=pricing.discount)


def promise_of(commitment: Commitment | None) -> Promise:
    """What is promised; nothing without an amount."""
    if commitment is None:
        return NOTHING_PROMISED
    units, price = bounded(commitment.units or ZERO), bounded(commitment.price or ZERO)
    blocks = commitment.overage_strategy == "Block"
    if commitment.type == "Currency":
        money = units if commitment.price is None else price
        return Promise(money=max(money, ZERO), fee=money, in_money=True, blocks=blocks)
    return Promise(units=max(units, ZERO), fee=price, blocks=blocks)


def check(product: ContractProduct, where: str) -> None:
    """Refuse tiers that cannot be, and kinds that are not understood.

    `where` is the product's path in the request.
    """
    pricing = product.pricing or Pricing()
    check_one_of(pricing.type, PRICING_TYPES, f"{where}.pricing.type")
    if pricing.discount is not None:
        check_one_of(pricing.discount.type, DISCOUNT_TYPES, f"{where}.pricing.discount.type")
    check_commitment(product.commitment, where)
    if pricing.type == "Tiered" and not _tiers(pricing):
        raise invalid_request(
            "a price by tiers needs tiers: a list of {upTo, price} with rising upTo, null in the last only",
            f"{where}.pricing.tiers",
        )


def check_commitment(commitment: Commitment | None, where: str) -> None:
    """Refuse a commitment whose kinds are not understood; `where` is the path of what has it."""
    if commitment is not None:
        check_one_of(commitment.type, COMMITMENT_TYPES, f"{where}.commitment.type")
        check_one_of(commitment.overage_strategy, OVERAGE_STRATEGIES, f"{where}.commitment.overageStrategy")


def check_one_of(given: str | None, known: Sequence[str], param: str) -> None:
    """Refuse a value that decides about money and is not understood; without one the usual holds."""
    if given is not None and given not in known:
        raise invalid_request(f"{param.rpartition('.')[2]} is one of {', '.join(known)}", param)


def _tiers(pricing: Pricing) -> tuple[Tier, ...] | None:
    """The tiers, or None if they are none: being no field of the specification, they may be anything."""
    given = (pricing.model_extra or {}).get("tiers")
    tiers: list[Tier] = []
    for each in given if isinstance(given, list) else ():
        if not isinstance(each, Mapping):
            return None
        up_to, price = each.get("upTo"), each.get("price")
        below = tiers[-1].up_to if tiers else ZERO
        if not _is_number(price) or below is None:
            return None
        if up_to is not None and not (_is_number(up_to) and up_to > below):
            return None
        end = None if up_to is None else bounded(Decimal(up_to))
        tiers.append(Tier(end, bounded(Decimal(price))))
    return tuple(tiers) or None


def _is_number(value: object) -> TypeGuard[int | Decimal]:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)
