"""The line items of a contract in a cycle: what is sold, what was used of it, and by which terms.

Source: spec, "Resources and their fields", ContractProduct and ProductGroup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import delete, insert, select

from billhook.resources import Commitment, ProductGroup
from billhook.sandbox.billing import contracts, usage
from billhook.sandbox.billing.contracts import KeptContract, SoldProduct
from billhook.sandbox.billing.credit_pools import Link, drain, pools_of
from billhook.sandbox.billing.exact import EXACT, ZERO, bounded, exact_sum
from billhook.sandbox.billing.rating import Charge, Part, charge, include, promised, rate
from billhook.sandbox.billing.terms import NOTHING_PROMISED, Promise, Terms, terms_of
from billhook.sandbox.billing.usage import Span, day_of, without
from billhook.sandbox.storage.tables.credit import cover
from billhook.sandbox.transaction import Transaction

__all__ = ["Cycle", "Line", "Use", "draw", "lines", "settle"]

_FINE = Decimal("1E-10")
"""Of a share of a fee: most have no last digit, and credits are drawn for what a discount leaves of it."""

_COVERED = {
    "covered_units": cover.c.units,
    "covered_money": cover.c.money,
    "invoiced_units": cover.c.invoiced_units,
    "invoiced_money": cover.c.invoiced_money,
}
"""What is kept of a part, by the names of its fields."""


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
    since: datetime
    """From when on its usage counts: the begin of the cycle, or of its commitment's period."""


@dataclass(frozen=True, slots=True)
class Line:
    """A product, or a group of them with what they share."""

    key: str
    product_id: str
    name: str
    uses: Sequence[Use]
    since: datetime
    """From when on usage counts for it, where it is a group; a product's own is in its use."""
    is_group: bool = False
    fee: Decimal = ZERO
    promise: Promise = NOTHING_PROMISED
    """The commitment of the group; a product's own is in its part."""

    @property
    def is_metered(self) -> bool:
        """Does usage decide about it?"""
        return any(use.sold.meter is not None for use in self.uses)

    @property
    def counted_from(self) -> datetime:
        """From when on usage decides about it."""
        return min([self.since, *(use.since for use in self.uses)])

    def charge(self, smallest: Decimal) -> Charge:
        """What is to be paid for it, in multiples of `smallest`."""
        parts = [use.part for use in self.uses]
        made = charge(self.product_id, self.name, parts, self.fee, smallest=smallest)
        pricing = None if self.is_group else self.uses[0].sold.product.pricing
        return replace(made, issued_separately=bool(pricing and pricing.issued_separately))


def lines(tx: Transaction, cycle: Cycle, only_meters: Collection[str] | None = None) -> list[Line]:
    """All the lines of a contract, or those with a product that one of these meters measures."""
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
    is_last = contracts.is_measured_to(tx, cycle.contract, cycle.end)
    used = _Usage(
        tx, cycle, contracts.older_terms(tx, cycle.contract), day_of(cycle.end) if is_last else None
    )
    return [
        _group(used, number, group, members) if group else _single(used, *next(iter(members.items())))
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


def settle(tx: Transaction, cycle: Cycle, use: Use) -> None:
    """Leave to an invoice what credits were not drawn for: those that come afterwards are for other usage."""
    part = use.part.invoiced()
    if use.sold.product.consumes_credit_product_ids and part != use.part:
        _remember_cover(tx, cycle, use.key, part)


def _grouped(
    contract: KeptContract, sold: dict[str, SoldProduct]
) -> Iterator[tuple[int, ProductGroup | None, dict[str, SoldProduct]]]:
    for key, each in sold.items():
        if each.group is None:
            yield 0, None, {key: each}
    for number, group in enumerate(() if contract.plan_id else contract.product_groups or (), 1):
        yield number, group, {key: each for key, each in sold.items() if each.group is group}


@dataclass(frozen=True, slots=True)
class _Usage:
    """What was used in a cycle, as far as it is this contract's."""

    tx: Transaction
    cycle: Cycle
    older: Sequence[tuple[Span, Collection[str]]]
    """When older contracts of the customer are in force, and the meters that are theirs then."""
    last_day: int | None
    """A day that counts besides, where it was measured."""

    def of(self, sold: SoldProduct, start: datetime, end: datetime) -> Decimal:
        """Units from `start` to before `end`."""
        if sold.meter is None or not sold.counts or start >= end:
            return ZERO
        taken = [term for term, meter_ids in self.older if sold.meter.id in meter_ids]
        last_day = self.last_day if end == self.cycle.end and not taken else None
        customer_id = self.cycle.contract.customer_id
        spans = without((start, end), taken)
        return bounded(max(usage.consumed(self.tx, customer_id, sold.meter, spans, last_day), ZERO))


def _single(used: _Usage, key: str, sold: SoldProduct) -> Line:
    uses = _uses(used, {key: sold}, NOTHING_PROMISED, None)
    return Line(key, sold.product_id, sold.name, uses, used.cycle.start)


def _group(used: _Usage, number: int, group: ProductGroup, members: dict[str, SoldProduct]) -> Line:
    cycle = used.cycle
    promise = promised(group.commitment, _price_of_group(members))
    name = f"{cycle.contract.id}-group-{number}"
    return Line(
        key=f"{cycle.contract.id}/group-{number}",
        product_id=name,
        name=group.display_name or name,
        uses=_uses(used, members, promise, group.commitment),
        is_group=True,
        fee=_fee(used, bounded(group.base_amount or ZERO), promise, group.commitment),
        promise=promise,
        since=contracts.commitment_start(cycle.contract, group.commitment, cycle.start),
    )


def _price_of_group(members: Mapping[str, SoldProduct]) -> Terms:
    """What units cost that a group has promised without a price: as those of its first product."""
    first = next(iter(members.values()), None)
    return Terms() if first is None else terms_of(first.product, metered=first.meter is not None)


def _uses(
    used: _Usage, members: dict[str, SoldProduct], shared: Promise, commitment: Commitment | None
) -> list[Use]:
    """The products with their usage; those without a commitment of their own have their group's."""
    uses = {key: _use(used, key, sold, commitment) for key, sold in members.items()}
    sharing = [key for key, use in uses.items() if not use.part.promise.is_made]
    spread = include([uses[key].part for key in sharing], shared)
    uses.update({key: replace(uses[key], part=part) for key, part in zip(sharing, spread, strict=True)})
    return list(uses.values())


def _use(used: _Usage, key: str, sold: SoldProduct, shared: Commitment | None) -> Use:
    cycle, product = used.cycle, sold.product
    terms = terms_of(product, metered=sold.meter is not None)
    own = promised(product.commitment, terms)
    counted_by = product.commitment if own.is_made else shared
    since = contracts.commitment_start(cycle.contract, counted_by, cycle.start)
    before = used.of(sold, since, cycle.start)
    covered = _covered(used.tx, cycle, key) if product.consumes_credit_product_ids else {}
    part = Part(
        terms=terms,
        units=max(used.of(sold, since, cycle.end), before),
        units_before=before,
        fee=_fee(used, terms.fee, own, product.commitment),
        discounted=terms.is_discounted(contracts.cycles_before(cycle.contract, cycle.start)),
        **covered,
    )
    return Use(key, sold, include([part], own)[0], since)


def _fee(used: _Usage, fee: Decimal, promise: Promise, commitment: Commitment | None) -> Decimal:
    """What is charged in a cycle besides usage: of a commitment that is for several cycles, in the first."""
    cycle = used.cycle
    if contracts.commitment_start(cycle.contract, commitment, cycle.start) < cycle.start:
        return _share(used, fee)
    if contracts.is_for_several_cycles(cycle.contract, commitment):
        return exact_sum([_share(used, fee), promise.fee])
    return _share(used, exact_sum([fee, promise.fee]))


def _share(used: _Usage, fee: Decimal) -> Decimal:
    """What is charged of a fee: by the days of the cycle, where the contract pro-rates."""
    cycle = used.cycle
    if not cycle.contract.pro_rates:
        return fee
    # The day within which a contract ends is its own, unless another one begins on it.
    end = cycle.end if used.last_day is None else cycle.end + timedelta(days=1)
    days, whole = contracts.days_of(cycle.contract, cycle.start, end)
    with localcontext(EXACT):
        return (fee * days / whole).quantize(_FINE)


def _covered(tx: Transaction, cycle: Cycle, key: str) -> Mapping[str, Any]:
    """What credits and invoices have paid for, by the names of Part's fields."""
    row = tx.connection.execute(
        select(*_COVERED.values()).where(cover.c.subject == key, cover.c.cycle_start == cycle.start)
    ).first()
    return {} if row is None else dict(zip(_COVERED, row, strict=True))


def _remember_cover(tx: Transaction, cycle: Cycle, key: str, part: Part) -> None:
    this = (cover.c.subject == key) & (cover.c.cycle_start == cycle.start)
    tx.connection.execute(delete(cover).where(this))
    values = {column.name: getattr(part, name) for name, column in _COVERED.items()}
    tx.connection.execute(insert(cover).values(subject=key, cycle_start=cycle.start, **values))
