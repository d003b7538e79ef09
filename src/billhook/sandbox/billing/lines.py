"""The line items of a contract in a cycle: what is sold, what was used of it, and by which terms.

Source: spec, "Resources and their fields", ContractProduct and ProductGroup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, localcontext

from sqlalchemy import delete, insert, select

from billhook.resources import ProductGroup
from billhook.sandbox.billing import contracts, usage
from billhook.sandbox.billing.contracts import KeptContract, SoldProduct
from billhook.sandbox.billing.credit_pools import Link, drain, pools_of
from billhook.sandbox.billing.exact import EXACT, ZERO, bounded, exact_sum
from billhook.sandbox.billing.rating import Charge, Part, charge, include, rate
from billhook.sandbox.billing.terms import NOTHING_PROMISED, Promise, promise_of, terms_of
from billhook.sandbox.storage.tables.credit import cover
from billhook.sandbox.transaction import Transaction

__all__ = ["Cycle", "Line", "Use", "draw", "lines"]

_FINE = Decimal("1E-10")
"""Of a share of a fee: most have no last digit, and credits are drawn for what a discount leaves of it."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """A contract from the day of `start` to the day before `end`."""

    contract: KeptContract
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Use:
    """A product and its usage. `key` is its own, also where a contract sells one thing twice."""

    key: str
    sold: SoldProduct
    part: Part


@dataclass(frozen=True, slots=True)
class Line:
    """A product, or a group of them with what they share."""

    key: str
    product_id: str
    name: str
    uses: Sequence[Use]
    is_group: bool = False
    fee: Decimal = ZERO
    promise: Promise = NOTHING_PROMISED
    """The commitment of the group; a product's own is in its part."""

    def charge(self) -> Charge:
        """What is to be paid for it."""
        made = charge(self.product_id, self.name, [use.part for use in self.uses], self.fee)
        pricing = None if self.is_group else self.uses[0].sold.product.pricing
        return replace(made, issued_separately=bool(pricing and pricing.issued_separately))


def lines(tx: Transaction, cycle: Cycle, only_meters: Collection[str] | None = None) -> list[Line]:
    """All the lines of a contract, or those with a product that one of these meters measures."""
    cycle = replace(cycle, end=contracts.counted_until(tx, cycle.contract, cycle.end))
    sold = {
        f"{cycle.contract.id}/{number}": each
        for number, each in enumerate(contracts.products(tx, cycle.contract), 1)
    }
    grouped = list(_grouped(cycle.contract, sold))
    if only_meters is not None:
        grouped = [
            (number, group, members)
            for number, group, members in grouped
            if any(each.meter and each.meter.id in only_meters for each in members.values())
        ]
    return [
        _group(tx, cycle, number, group, members)
        if group
        else _single(tx, cycle, *next(iter(members.items())))
        for number, group, members in grouped
    ]


def draw(tx: Transaction, cycle: Cycle, use: Use) -> Use:
    """Draw credits for what of a product's usage is still to be paid; the product as it is then.

    What was once drawn stays so: if the usage is corrected downwards, it covers what comes next.
    """
    part = use.part
    for pool in pools_of(tx, cycle.contract.customer_id, use.sold.product.consumes_credit_product_ids or []):
        due = rate(part)
        by_units = pool.kind == "Unit"
        wanted = due.due_units if by_units else due.due_money
        taken = drain(tx, pool, wanted, Link(contract_id=cycle.contract.id))
        if taken > 0:
            part = part.covered(taken, by_units=by_units)
    if part is use.part:
        return use
    _remember_cover(tx, cycle, use.key, part)
    return replace(use, part=part)


def _grouped(
    contract: KeptContract, sold: dict[str, SoldProduct]
) -> Iterator[tuple[int, ProductGroup | None, dict[str, SoldProduct]]]:
    for key, each in sold.items():
        if each.group is None:
            yield 0, None, {key: each}
    for number, group in enumerate(() if contract.plan_id else contract.product_groups or (), 1):
        yield number, group, {key: each for key, each in sold.items() if each.group is group}


def _single(tx: Transaction, cycle: Cycle, key: str, sold: SoldProduct) -> Line:
    return Line(key, sold.product_id, sold.name, _uses(tx, cycle, {key: sold}, NOTHING_PROMISED))


def _group(
    tx: Transaction, cycle: Cycle, number: int, group: ProductGroup, members: dict[str, SoldProduct]
) -> Line:
    promise = promise_of(group.commitment)
    name = f"{cycle.contract.id}-group-{number}"
    return Line(
        key=f"{cycle.contract.id}/group-{number}",
        product_id=name,
        name=group.display_name or name,
        uses=_uses(tx, cycle, members, promise),
        is_group=True,
        fee=_share(cycle, exact_sum([bounded(group.base_amount or ZERO), promise.fee])),
        promise=promise,
    )


def _uses(tx: Transaction, cycle: Cycle, members: dict[str, SoldProduct], shared: Promise) -> list[Use]:
    """The products with their usage; those without a commitment of their own have their group's."""
    parts = {key: _part(tx, cycle, key, sold) for key, sold in members.items()}
    sharing = [key for key, part in parts.items() if not part.promise.is_made]
    parts.update(zip(sharing, include([parts[key] for key in sharing], shared), strict=True))
    return [Use(key, members[key], part) for key, part in parts.items()]


def _part(tx: Transaction, cycle: Cycle, key: str, sold: SoldProduct) -> Part:
    terms = terms_of(sold.product, metered=sold.meter is not None)
    own = promise_of(sold.product.commitment)
    units, covered_units, covered_money = ZERO, ZERO, ZERO
    if sold.meter is not None:
        used = usage.consumed(tx, cycle.contract.customer_id, sold.meter, cycle.start, cycle.end)
        units = bounded(max(used, ZERO))
    if sold.product.consumes_credit_product_ids:
        covered_units, covered_money = _covered(tx, cycle, key)
    part = Part(
        terms=terms,
        units=units,
        fee=_share(cycle, exact_sum([terms.fee, own.fee])),
        covered_units=covered_units,
        covered_money=covered_money,
        discounted=terms.is_discounted(contracts.cycles_before(cycle.contract, cycle.start)),
    )
    return include([part], own)[0]


def _share(cycle: Cycle, fee: Decimal) -> Decimal:
    """What is charged of a fee: by the days of the cycle, where the contract pro-rates."""
    if not cycle.contract.pro_rates:
        return fee
    days, whole = contracts.days_of(cycle.contract, cycle.start, cycle.end)
    with localcontext(EXACT):
        return (fee * days / whole).quantize(_FINE)


def _covered(tx: Transaction, cycle: Cycle, key: str) -> tuple[Decimal, Decimal]:
    row = tx.connection.execute(
        select(cover.c.units, cover.c.money).where(cover.c.subject == key, cover.c.cycle_start == cycle.start)
    ).first()
    return (ZERO, ZERO) if row is None else (row.units, row.money)


def _remember_cover(tx: Transaction, cycle: Cycle, key: str, part: Part) -> None:
    this = (cover.c.subject == key) & (cover.c.cycle_start == cycle.start)
    tx.connection.execute(delete(cover).where(this))
    tx.connection.execute(
        insert(cover).values(
            subject=key, cycle_start=cycle.start, units=part.covered_units, money=part.covered_money
        )
    )
