"""The lines of a contract in a billing cycle: what is sold, how much was used, and on which terms.

Source: spec, "Resources and their fields", ContractProduct and ProductGroup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, localcontext
from types import MappingProxyType

from billhook.resources import Commitment, ProductGroup
from billhook.sandbox.billing import contracts, cycles, daily_usage
from billhook.sandbox.billing.contracts import Seller, SoldProduct, is_handed_over, last_days, owned_spans
from billhook.sandbox.billing.credit_pools import LedgerReference, customer_pools, draw_for_usage, usage_paid
from billhook.sandbox.billing.cycles import ContractRecord
from billhook.sandbox.billing.meters import Meter
from billhook.sandbox.billing.money import EXACT, ZERO, clamp, exact_sum
from billhook.sandbox.billing.rating import (
    NO_COMMITMENT,
    NO_USAGE,
    Charge,
    CommitmentTerms,
    PricedUsage,
    PriceTerms,
    UsageAmount,
    apply_commitment,
    charge,
    price_terms,
    priced_commitment,
    rate,
)
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.tables import invoice

_ONE = Decimal(1)
_SHARE_PRECISION = Decimal("1E-10")
"""The precision of a pro-rated amount: most shares have no last digit, and credits are drawn for them."""


@dataclass(frozen=True, slots=True)
class ContractCycle:
    """A billing cycle of a contract, from `start` to before `end`."""

    contract: ContractRecord
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class ProductUsage:
    """A product and its usage.

    `key` is unique, also where a contract sells one product twice.
    """

    key: str
    sold: SoldProduct
    priced: PricedUsage
    since: datetime
    """From when on usage counts: the start of the cycle, or of the commitment's period."""


@dataclass(frozen=True, slots=True)
class ContractLine:
    """A line: a product, or a group of products with the fee and commitment that they share."""

    key: str
    product_id: str
    name: str
    usages: Sequence[ProductUsage]
    since: datetime
    """From when on usage counts for a group; a product has its own."""
    is_group: bool = False
    fee: Decimal = ZERO
    commitment: CommitmentTerms = NO_COMMITMENT
    """The group's commitment; a product's own is in its usage."""

    @property
    def is_metered(self) -> bool:
        """True if the amount depends on usage."""
        return any(usage.sold.meter is not None for usage in self.usages)

    def charge(self, smallest: Decimal) -> Charge:
        """Return the line's charge, in multiples of `smallest`."""
        products = [usage.priced for usage in self.usages]
        result = charge(self.product_id, self.name, products, self.fee, smallest=smallest)
        pricing = None if self.is_group else self.usages[0].sold.product.pricing
        return replace(result, issued_separately=bool(pricing and pricing.issued_separately))


def contract_lines(
    tx: Transaction,
    cycle: ContractCycle,
    only_meters: Collection[str] | None = None,
    invoiced: Mapping[str, UsageAmount] = MappingProxyType({}),
) -> list[ContractLine]:
    """Return the lines of a contract; with `only_meters`, those with a product of these meters.

    `invoiced` is what invoices have for the cycle's usage already, by product key.
    """
    sold = {
        # Numbered before filtering: the key of a product must not depend on `only_meters`.
        f"{cycle.contract.id}/{number}": each
        for number, each in enumerate(contracts.sold_products(tx, cycle.contract), 1)
    }
    grouped = list(_grouped(cycle.contract, sold))
    if only_meters is not None:
        grouped = [
            (number, group, members)
            for number, group, members in grouped
            if any(each.meter and each.meter.id in only_meters for each in members.values())
        ]
    # Without a meter there is no usage that could be another contract's. A customer may have many of these.
    is_metered = any(each.meter for _, _, members in grouped for each in members.values())
    sellers = contracts.sellers(tx, cycle.contract) if is_metered else ()
    cycle_usage = _CycleUsage(tx, cycle, sellers, invoiced)
    lines = []
    for number, group, members in grouped:
        if group is not None:
            lines.append(_group_line(cycle_usage, number, group, members))
        else:
            [(key, each)] = members.items()
            usages = _product_usages(cycle_usage, members, NO_COMMITMENT, None)
            lines.append(ContractLine(key, each.product_id, each.name, usages, cycle.start))
    return lines


def draw_credits(tx: Transaction, cycle: ContractCycle, usage: ProductUsage) -> ProductUsage:
    """Draw credits for the usage that is still due, and return the product as it is then.

    Credits once drawn stay drawn: if the usage is corrected downwards, they cover later usage.
    """
    priced = usage.priced
    for pool in customer_pools(
        tx, cycle.contract.customer_id, usage.sold.product.consumes_credit_product_ids or []
    ):
        # Rated again for each pool: earlier pools have reduced what is due.
        due = rate(priced).due
        by_units = pool.kind == "Unit"
        wanted = due.units if by_units else due.money
        link = LedgerReference(cycle.contract.id, product_key=usage.key, cycle_start=cycle.start)
        taken = draw_for_usage(tx, pool, wanted, link)
        more = UsageAmount(units=taken) if by_units else UsageAmount(money=taken)
        priced = replace(priced, covered=priced.covered.plus(more))
    return replace(usage, priced=priced)


def _grouped(
    contract: ContractRecord, sold: dict[str, SoldProduct]
) -> Iterator[tuple[int, ProductGroup | None, dict[str, SoldProduct]]]:
    for key, each in sold.items():
        if each.group is None:
            yield 0, None, {key: each}
    # A contract of a plan sells the plan's products only.
    for number, group in enumerate(() if contract.plan_id else contract.product_groups or (), 1):
        yield number, group, {key: each for key, each in sold.items() if each.group is group}


@dataclass(frozen=True, slots=True)
class _CycleUsage:
    """Reads the usage in a cycle that belongs to its contract."""

    tx: Transaction
    cycle: ContractCycle
    sellers: Sequence[Seller]
    """The customer's contracts that sell metered products, in the order of their claims."""
    invoiced: Mapping[str, UsageAmount]
    """What invoices have for the cycle's usage already, by product key."""

    def of(self, sold: SoldProduct, start: datetime, end: datetime) -> Decimal:
        """Return the units used from `start` to before `end`."""
        if sold.meter is None or not sold.counts or start >= end:
            return ZERO
        contract = self.cycle.contract
        spans = owned_spans(self.sellers, contract.id, sold.meter.id, (start, end))
        days = last_days(self.sellers, sold.meter.id, spans)
        used = daily_usage.consumed_units(self.tx, contract.customer_id, sold.meter, spans, days)
        # Negative sums of events are no usage: they must not reduce an invoice.
        return clamp(max(used, ZERO))


def _group_line(
    cycle_usage: _CycleUsage, number: int, group: ProductGroup, members: dict[str, SoldProduct]
) -> ContractLine:
    cycle = cycle_usage.cycle
    # Units that a group commits to without a price cost that of its first product.
    prices = [price_terms(each.product, metered=each.meter is not None) for each in members.values()]
    whole = priced_commitment(group.commitment, prices[0] if prices else PriceTerms())
    committed = _pro_rated_commitment(cycle_usage, whole, group.commitment, None)
    name = f"{cycle.contract.id}-group-{number}"
    return ContractLine(
        key=f"{cycle.contract.id}/group-{number}",
        product_id=name,
        name=group.display_name or name,
        usages=_product_usages(cycle_usage, members, committed, group.commitment),
        is_group=True,
        fee=_fee(cycle_usage, clamp(group.base_amount or ZERO), committed, group.commitment),
        commitment=committed,
        since=cycles.commitment_start(cycle.contract, group.commitment, cycle.start),
    )


def _product_usages(
    cycle_usage: _CycleUsage,
    members: dict[str, SoldProduct],
    shared: CommitmentTerms,
    commitment: Commitment | None,
) -> list[ProductUsage]:
    """Return the products with their usage; those without a commitment share their group's."""
    usages = {key: _product_usage(cycle_usage, key, sold, commitment) for key, sold in members.items()}
    sharing = [key for key, usage in usages.items() if not usage.priced.commitment.exists]
    spread = apply_commitment([usages[key].priced for key in sharing], shared)
    usages.update(
        {key: replace(usages[key], priced=priced) for key, priced in zip(sharing, spread, strict=True)}
    )
    return list(usages.values())


def _product_usage(
    cycle_usage: _CycleUsage, key: str, sold: SoldProduct, shared: Commitment | None
) -> ProductUsage:
    cycle, product = cycle_usage.cycle, sold.product
    terms = price_terms(product, metered=sold.meter is not None)
    own = _pro_rated_commitment(
        cycle_usage, priced_commitment(product.commitment, terms), product.commitment, sold.meter
    )
    counted_by = product.commitment if own.exists else shared
    since = cycles.commitment_start(cycle.contract, counted_by, cycle.start)
    before = cycle_usage.of(sold, since, cycle.start)
    consumes = bool(product.consumes_credit_product_ids)
    priced = PricedUsage(
        terms=terms,
        # A later figure may be smaller (method last): what was billed in earlier cycles stays billed.
        units=max(cycle_usage.of(sold, since, cycle.end), before),
        units_before=before,
        fee=_fee(cycle_usage, terms.fee, own, product.commitment, sold.meter),
        discounted=terms.is_discounted(cycles.completed_cycles(cycle.contract, cycle.start)),
        covered=usage_paid(cycle_usage.tx, key, cycle.start) if consumes else NO_USAGE,
        invoiced=cycle_usage.invoiced.get(key, NO_USAGE),
    )
    return ProductUsage(key, sold, apply_commitment([priced], own)[0], since)


def _fee(
    cycle_usage: _CycleUsage,
    fee: Decimal,
    committed: CommitmentTerms,
    commitment: Commitment | None,
    meter: Meter | None = None,
) -> Decimal:
    """Return the cycle's fee without usage.

    A commitment for several cycles is charged in the first of them that is billed.
    """
    cycle = cycle_usage.cycle
    pro_rated = _pro_rated(cycle_usage, fee, meter)
    since = cycles.commitment_start(cycle.contract, commitment, cycle.start)
    billed = invoice.c.contract_id == cycle.contract.id, invoice.c.cycle_start.between(since, cycle.start)
    if since < cycle.start and cycle_usage.tx.any(invoice, *billed, invoice.c.cycle_start < cycle.start):
        return pro_rated
    return exact_sum([pro_rated, committed.fee])


def _pro_rated_commitment(
    cycle_usage: _CycleUsage, committed: CommitmentTerms, commitment: Commitment | None, meter: Meter | None
) -> CommitmentTerms:
    """Return the cycle's share of a commitment: of its price, and of what it includes."""
    contract = cycle_usage.cycle.contract
    # A commitment for several cycles is for its whole period, so a short first cycle does not reduce it.
    if not contract.pro_rates or cycles.commitment_cycles(commitment, cycles.cycle_period(contract)) > 1:
        return committed
    return replace(
        committed,
        units=_pro_rated(cycle_usage, committed.units, meter),
        money=_pro_rated(cycle_usage, committed.money, meter),
        fee=_pro_rated(cycle_usage, committed.fee, meter),
    )


def _pro_rated(cycle_usage: _CycleUsage, amount: Decimal, meter: Meter | None) -> Decimal:
    """Return the cycle's share of an amount, by days, if the contract pro-rates.

    The day on which a contract ends is charged, unless another one that sells the same begins on it.
    """
    cycle, contract = cycle_usage.cycle, cycle_usage.cycle.contract
    if not amount or not contract.pro_rates:
        return amount
    is_last = cycle.end == contract.end_date and not cycles.renews(contract)
    hands_over = meter is not None and is_handed_over(cycle_usage.sellers, contract.id, meter.id, cycle.end)
    days, whole = cycles.billed_days(contract, cycle.start, cycle.end, with_last=is_last and not hands_over)
    with localcontext(EXACT):
        share = (amount * days / whole).quantize(_SHARE_PRECISION)
        # Without zeros at its end, since consumption shows it: 22 and not 22.0000000000.
        return share.quantize(_ONE) if share == share.to_integral_value() else share.normalize()
