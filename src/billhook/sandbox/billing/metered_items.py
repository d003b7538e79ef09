"""Metered items: products, and groups with a shared commitment, whose usage has thresholds.

Source: spec, "Resources and their fields", Product consumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, localcontext

from billhook.resources import ProductConsumption
from billhook.sandbox.billing.contracts import contracts, cycles
from billhook.sandbox.billing.contracts.pricing import NO_COMMITMENT, CommitmentTerms, Tier
from billhook.sandbox.billing.decimals import EXACT, ZERO, exact_sum
from billhook.sandbox.billing.line_items import ContractCycle, ContractLine, ProductUsage, contract_lines
from billhook.sandbox.billing.rating import usage_price
from billhook.sandbox.billing.thresholds import percent
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["MeteredItem", "customer_consumption", "metered_items"]


@dataclass(frozen=True, slots=True)
class MeteredItem:
    """A product, or a group whose products share a commitment, with its usage."""

    key: str
    product_id: str
    name: str
    units: Decimal
    money: Decimal
    """The usage at its price, with or without a commitment."""
    since: datetime
    """From when on usage is counted."""
    commitment: CommitmentTerms = NO_COMMITMENT
    tiers: tuple[Tier, ...] = ()
    is_blocked: bool = False
    """True if its group has no access any more."""

    @property
    def has_access(self) -> bool:
        """False once a commitment that blocks is used up."""
        committed = self.commitment
        left = self.money < committed.money if committed.in_money else self.units < committed.units
        return not self.is_blocked and (left or not (committed.blocks and committed.exists))

    def consumption(self) -> ProductConsumption:
        """Return the consumption as the API shows it, in money if the commitment is.

        Without a commitment nothing is provisioned or remaining.
        """
        provisioned, consumed = self.commitment.units, self.units
        if self.commitment.in_money:
            provisioned, consumed = self.commitment.money, self.money
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


def metered_items(line: ContractLine) -> list[MeteredItem]:
    """Return the metered items of a line: each product, and the group if it has a commitment."""
    sharing = [usage for usage in line.usages if usage.priced.commitment is line.commitment]
    found = []
    group = MeteredItem(
        line.key, line.product_id, line.name, *_units_and_money(sharing), line.since, line.commitment
    )
    for usage in line.usages:
        # By identity: two equal commitments are still two, the group's and the product's own.
        shares = usage.priced.commitment is line.commitment
        found.append(
            MeteredItem(
                key=usage.key,
                product_id=usage.sold.product_id,
                name=usage.sold.name,
                units=usage.priced.units,
                money=_units_and_money([usage])[1],
                since=usage.since,
                commitment=NO_COMMITMENT if shares else usage.priced.commitment,
                tiers=usage.priced.terms.tiers,
                is_blocked=shares and not group.has_access,
            )
        )
    return [*found, group] if line.commitment.exists else found


def customer_consumption(tx: Transaction, customer_id: str) -> list[ProductConsumption]:
    """Return the consumption in the present cycles of the customer's contracts in force."""
    return [
        item.consumption()
        for contract in contracts.active(tx, customer_id, tx.now)
        for line in contract_lines(tx, ContractCycle(contract, *cycles.cycle_at(contract, tx.now)))
        for item in metered_items(line)
    ]


def _units_and_money(usages: Sequence[ProductUsage]) -> tuple[Decimal, Decimal]:
    """Return the units of these products, and their price without a commitment."""
    with localcontext(EXACT):
        money = sum((usage_price(usage.priced.terms, usage.priced.units) for usage in usages), ZERO)
    return exact_sum(usage.priced.units for usage in usages), money
