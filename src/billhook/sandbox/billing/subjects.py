"""What is watched of a contract's usage: products, and groups with a commitment that these share.

Source: spec, "Resources and their fields", Product consumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, localcontext

from billhook.resources import ProductConsumption
from billhook.sandbox.billing.crossings import percent
from billhook.sandbox.billing.exact import EXACT, ZERO, exact_sum
from billhook.sandbox.billing.lines import Line, Use
from billhook.sandbox.billing.rating import usage_price
from billhook.sandbox.billing.terms import NOTHING_PROMISED, Promise, Tier

__all__ = ["Subject", "subjects"]


@dataclass(frozen=True, slots=True)
class Subject:
    """Something whose usage is watched: a product, or a group with a commitment that its products share."""

    key: str
    product_id: str
    name: str
    units: Decimal
    money: Decimal
    """What the usage costs by its price, commitment or not."""
    since: datetime
    """From when on this is counted."""
    promise: Promise = NOTHING_PROMISED
    tiers: tuple[Tier, ...] = ()
    is_blocked: bool = False
    """Has its group no access any more?"""

    @property
    def has_access(self) -> bool:
        """May it still be used? Not beyond a commitment that blocks."""
        promise = self.promise
        left = self.money < promise.money if promise.in_money else self.units < promise.units
        return not self.is_blocked and (left or not (promise.blocks and promise.is_made))

    def consumption(self) -> ProductConsumption:
        """As the API tells it, in money if the commitment is; without one nothing is provisioned or left."""
        provisioned, consumed = self.promise.units, self.units
        if self.promise.in_money:
            provisioned, consumed = self.promise.money, self.money
        with localcontext(EXACT):
            return ProductConsumption(
                product_id=self.product_id,
                product_name=self.name,
                provisioned_amount=provisioned,
                consumed_amount=consumed,
                usage_percentage=percent(consumed, provisioned),
                remaining_amount=max(provisioned - consumed, ZERO),
                exceeded_amount=max(consumed - provisioned, ZERO) if provisioned else ZERO,
                has_access=self.has_access,
            )


def subjects(line: Line) -> list[Subject]:
    """What is watched of a line: each product, and the group if it has a commitment."""
    sharing = [use for use in line.uses if use.part.promise is line.promise]
    found = []
    group = Subject(line.key, line.product_id, line.name, *_used(sharing), line.since, line.promise)
    for use in line.uses:
        shares = use.part.promise is line.promise
        found.append(
            Subject(
                key=use.key,
                product_id=use.sold.product_id,
                name=use.sold.name,
                units=use.part.units,
                money=_used([use])[1],
                since=use.since,
                promise=NOTHING_PROMISED if shares else use.part.promise,
                tiers=use.part.terms.tiers,
                is_blocked=shares and not group.has_access,
            )
        )
    return [*found, group] if line.promise.is_made else found


def _used(uses: Sequence[Use]) -> tuple[Decimal, Decimal]:
    """Units, and what they cost by their prices."""
    with localcontext(EXACT):
        money = sum((usage_price(use.part.terms, use.part.units) for use in uses), ZERO)
    return exact_sum(use.part.units for use in uses), money
