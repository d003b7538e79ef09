"""Metered items: products, and groups with a shared commitment, whose usage has thresholds; and their events.

An item's usage crosses tiers, uses up commitments and reaches percentages of them: each raises an event once
a cycle. A change of usage also draws credits for it. Source: spec, "Resources and their fields", Product
consumption; "Events".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any

from billhook import events
from billhook.resources import Customer, ProductConsumption
from billhook.sandbox.billing.contracts import contracts, customers
from billhook.sandbox.billing.credits import credit_pools
from billhook.sandbox.billing.invoicing.line_items import (
    ContractCycle,
    ContractLine,
    ProductUsage,
    contract_lines,
    draw_credits,
    reverse_credits,
)
from billhook.sandbox.billing.usage import cycles, thresholds
from billhook.sandbox.billing.usage.money import EXACT, ZERO, exact_sum
from billhook.sandbox.billing.usage.rating import NO_COMMITMENT, Charge, CommitmentTerms, Tier, usage_price
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.webhooks.outbox import raise_event

_HUNDRED_PERCENT = Decimal(100)
_Crossed = list[tuple[Decimal, events.Event, list[str] | None]]
"""The usage at each threshold, its event, and the subscription ids that receive it; None for all."""


@dataclass(frozen=True, slots=True)
class ChangedCycle:
    """A cycle whose usage has changed; `only_products` and `billed` are those of `contract_lines`."""

    cycle: ContractCycle
    only_products: Collection[str] | None = None
    billed: Collection[Charge] = ()


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
                usage_percentage=thresholds.percent(consumed, provisioned),
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
        for contract in contracts.in_force(tx, [customer_id], tx.now)
        for line in contract_lines(tx, ContractCycle(contract, *cycles.cycle_at(contract, tx.now)))
        for item in metered_items(line)
    ]


def _units_and_money(usages: Sequence[ProductUsage]) -> tuple[Decimal, Decimal]:
    """Return the units of these products, and their price without a commitment."""
    with localcontext(EXACT):
        money = sum((usage_price(usage.priced.terms, usage.priced.units) for usage in usages), ZERO)
    return exact_sum(usage.priced.units for usage in usages), money


def settle(tx: Transaction, cycle: ContractCycle, billed: Collection[Charge] = ()) -> list[ContractLine]:
    """Settle the usage of one cycle as `settle_all` does, and return its lines as they are then."""
    [lines] = settle_all(tx, [ChangedCycle(cycle, None, billed)])
    return lines


def settle_all(tx: Transaction, changed: Sequence[ChangedCycle]) -> list[list[ContractLine]]:
    """Emit the events of the usage of these cycles, and have credits pay for it; return the lines of each.

    It may be called as often as usage changes: each event is raised once in a cycle, and usage that credits
    or invoices have paid for draws none. Credits that have paid for usage that is not there any more go back
    first: they may pay in another of these cycles, of the contract to which the usage has passed.
    """
    settled, lots = [], set[str]()
    for each in changed:
        customer, lines = customers.find(tx, each.cycle.contract.customer_id), []
        for line in contract_lines(tx, each.cycle, each.only_products, each.billed):
            for item in metered_items(line):
                _raise_threshold_events(tx, each.cycle, customer, item)
            given = [reverse_credits(tx, each.cycle, usage) for usage in line.usages]
            lots.update(*(lots_of for _, lots_of in given))
            lines.append(replace(line, usages=[usage for usage, _ in given]))
        settled.append(lines)
    drawn = [
        [
            replace(line, usages=[draw_credits(tx, each.cycle, usage) for usage in line.usages])
            for line in lines
        ]
        for each, lines in zip(changed, settled, strict=True)
    ]
    credit_pools.expire_lots(tx, lots)
    return drawn


def _raise_threshold_events(
    tx: Transaction, cycle: ContractCycle, customer: Customer, item: MeteredItem
) -> None:
    """Emit the events of all limits from the cycle's high-water mark to the usage, in rising order."""
    if not (item.tiers or item.commitment.exists):
        return
    units, money = thresholds.high_water_mark(tx, item.key, item.since)
    # Not above the highest usage so far: a correction downwards crosses nothing.
    if item.units <= units and item.money <= money:
        return
    crossed = [
        *_tier_events(tx, cycle, customer, item, units),
        *_commitment_events(tx, cycle, customer, item, money if item.commitment.in_money else units),
    ]
    # Rising, as slow usage would have crossed them one by one.
    for _, event, only in sorted(crossed, key=lambda each: each[0]):
        raise_event(tx, event, only=only)
    thresholds.store_high_water_mark(tx, item.key, item.since, max(units, item.units), max(money, item.money))


def _tier_events(
    tx: Transaction, cycle: ContractCycle, customer: Customer, item: MeteredItem, before: Decimal
) -> _Crossed:
    details: dict[str, Any] = {
        "date": tx.now,
        "customer_id": customer.id,
        "contract_id": cycle.contract.id,
        "customer_name": customer.name or customer.id,
        "contract_name": contracts.display_name(cycle.contract),
    }
    found: _Crossed = [
        (border, events.TierCrossed(**details, variant_id=f"{item.product_id}:tier{number}"), None)
        for number, border in thresholds.tiers_entered(item.tiers, before, item.units)
    ]
    if thresholds.exceeds_final_tier(item.tiers, before, item.units):
        final = events.FinalTierExceeded(
            **details, product_id=item.product_id, product_name=item.name, accumulated_units_value=item.units
        )
        found.append((item.tiers[-1].up_to or ZERO, final, None))
    return found


def _commitment_events(
    tx: Transaction, cycle: ContractCycle, customer: Customer, item: MeteredItem, before: Decimal
) -> _Crossed:
    in_money = item.commitment.in_money
    committed = item.commitment.money if in_money else item.commitment.units
    if committed <= 0:
        return []
    consumption = item.consumption()

    def crossed(mark: Decimal) -> events.Event:
        details: dict[str, Any] = {
            "date": tx.now,
            "customer_id": customer.id,
            "threshold": mark,
            "pct_usage": consumption.usage_percentage,
        }
        if not in_money:
            snapshot = consumption.model_dump(exclude={"exceeded_amount"})
            return events.CommitmentUsageCrossed(
                **details, product_consumption=events.ProductConsumptionSnapshot(**snapshot)
            )
        return events.CurrencyCommitmentUsageCrossed(
            **details,
            product_id=item.product_id,
            product_name=item.name,
            currency=cycle.contract.billed_in,
            committed_amount=committed,
            consumed_amount=item.money,
            cycle_start=item.since,
        )

    rules = thresholds.threshold_rules(
        tx, (events.CurrencyCommitmentUsageCrossed if in_money else events.CommitmentUsageCrossed).type
    )
    used = item.money if in_money else item.units
    found: _Crossed = [
        (mark, crossed(mark), only)
        for mark, only in thresholds.thresholds_crossed(rules, committed, before, used)
    ]
    if thresholds.thresholds_crossed([thresholds.ThresholdRule(_HUNDRED_PERCENT)], committed, before, used):
        found.append((_HUNDRED_PERCENT, events.CommitmentCrossed(**consumption.model_dump()), None))
    if in_money:
        return found
    with localcontext(EXACT):
        # From percent to units, to sort them among the tiers.
        return [(mark.scaleb(-2) * committed, event, only) for mark, event, only in found]
