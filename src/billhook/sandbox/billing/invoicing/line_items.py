"""The lines of a contract in a billing cycle: what is sold, how much was used, and on which terms.

Source: spec, "Resources and their fields", ContractProduct and ProductGroup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, localcontext
from functools import cached_property

from billhook.resources import Commitment, ProductGroup
from billhook.sandbox.billing.contracts import contracts
from billhook.sandbox.billing.contracts.contracts import (
    Seller,
    SoldProduct,
    is_handed_over,
    last_days,
    owned_spans,
)
from billhook.sandbox.billing.credits.credit_pools import (
    LedgerReference,
    customer_pools,
    draw_for_usage,
    reverse_draws,
    usage_paid,
)
from billhook.sandbox.billing.invoicing import invoices
from billhook.sandbox.billing.usage import cycles, daily_usage
from billhook.sandbox.billing.usage.cycles import ContractRecord
from billhook.sandbox.billing.usage.money import EXACT, ZERO, clamp, exact_sum
from billhook.sandbox.billing.usage.rating import (
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
    units_beyond,
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
    last_days: tuple[str, ...] = ()
    """See Charge."""

    @property
    def issued_separately(self) -> bool:
        """True if the line gets an invoice of its own."""
        pricing = None if self.is_group else self.usages[0].sold.product.pricing
        return bool(pricing and pricing.issued_separately)

    @property
    def is_exceeded(self) -> bool:
        """True if usage of this cycle is beyond a commitment, even where that is free of charge."""
        shared = [usage.priced for usage in self.usages if usage.priced.commitment is self.commitment]
        own = [[usage.priced] for usage in self.usages if usage.priced.commitment is not self.commitment]
        return any(
            units_beyond(sharing) > 0
            for sharing in (shared, *own)
            if sharing and sharing[0].commitment.exists
        )

    def charge(self, smallest: Decimal) -> Charge:
        """Return the line's charge, in multiples of `smallest`."""
        products = [usage.priced for usage in self.usages]
        charged = charge(self.product_id, self.name, products, self.fee, smallest=smallest)
        return replace(
            charged,
            line_key=self.key,
            issued_separately=self.issued_separately,
            exceeded=self.is_exceeded,
            last_days=self.last_days,
        )


def contract_lines(
    tx: Transaction,
    cycle: ContractCycle,
    only_products: Collection[str] | None = None,
    billed: Collection[Charge] = (),
) -> list[ContractLine]:
    """Return the lines of a contract; with `only_products`, those with one of these catalog products.

    `billed` is what invoices have for the cycle, if it is billed.
    """
    sold = {
        # Numbered before filtering: the key of a product must not depend on `only_products`.
        f"{cycle.contract.id}/{number}": each
        for number, each in enumerate(contracts.sold_products(tx, cycle.contract), 1)
    }
    made = _CycleLines(tx, cycle, billed)
    lines = []
    for number, group, members in _grouped(cycle.contract, sold):
        ids = [each.product_id for each in members.values()]
        if only_products is not None and not set(ids).intersection(only_products):
            continue
        if group is not None:
            lines.append(made.group_line(number, group, members))
        else:
            [(key, each)] = members.items()
            usages = made.product_usages(members, NO_COMMITMENT, None)
            days = tuple(ids) if made.charges_last_day(ids) else ()
            line = ContractLine(key, each.product_id, each.name, usages, cycle.start, last_days=days)
            lines.append(line)
    return lines


def reverse_credits(
    tx: Transaction, cycle: ContractCycle, usage: ProductUsage
) -> tuple[ProductUsage, set[str]]:
    """Reverse what credits have paid for usage that is not there any more.

    It was corrected, or has passed to another contract. Returns the product as it is then, and the lots that
    have got credits back.
    """
    # Most usage is paid for by no credits, and settled often.
    excess = rate(usage.priced).excess if any(usage.priced.covered) else NO_USAGE
    if not any(excess):
        return usage, set()
    link = LedgerReference(cycle.contract.id, product_key=usage.key, cycle_start=cycle.start)
    lots = reverse_draws(tx, link, excess)
    return replace(usage, priced=replace(usage.priced, covered=usage.priced.covered.plus(excess, -1))), lots


def draw_credits(tx: Transaction, cycle: ContractCycle, usage: ProductUsage) -> ProductUsage:
    """Draw credits for the usage that is still due, and return the product as it is then."""
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


class _CycleLines:
    """Makes the lines of a cycle, of the usage in it and the days that belong to the contract."""

    def __init__(self, tx: Transaction, cycle: ContractCycle, billed: Collection[Charge]) -> None:
        self.tx, self.cycle = tx, cycle
        self._billed = billed
        self.invoiced = {key: unpaid for charge in billed for key, unpaid in charge.unpaid.items()}
        """What invoices have for the cycle's usage already, by product key."""

    @cached_property
    def _sellers(self) -> Sequence[Seller]:
        """The contracts of the customer, as `contracts.sellers` orders them."""
        # Read when it is needed: most fees depend on no other contract, and a customer may have many.
        return contracts.sellers(self.tx, self.cycle.contract)

    def of(self, sold: SoldProduct, start: datetime, end: datetime) -> Decimal:
        """Return the units used from `start` to before `end`."""
        if sold.meter is None or not sold.counts or start >= end:
            return ZERO
        contract = self.cycle.contract
        spans = owned_spans(self._sellers, contract.id, sold.product_id, (start, end))
        days = last_days(self._sellers, sold.product_id, spans)
        used = daily_usage.consumed_units(self.tx, contract.customer_id, sold.meter, spans, days)
        # Negative sums of events are no usage: they must not reduce an invoice.
        return clamp(max(used, ZERO))

    def charges_last_day(self, product_ids: Collection[str]) -> bool:
        """Return whether the contract charges the day on which it ends, for one of these products.

        It does unless another contract that sells the same begins on that day, or once it has done so.
        """
        contract, end = self.cycle.contract, self.cycle.end
        if not contract.pro_rates or not cycles.ends_within_a_day(contract, end):
            return False
        if self._billed:
            charged = {each for charge in self._billed for each in charge.last_days}
            return not charged.isdisjoint(product_ids)
        return not all(is_handed_over(self._sellers, contract.id, each, end) for each in product_ids)

    def first_day_is_charged(self, product_ids: Collection[str]) -> bool:
        """Return whether the first day is charged already: by contracts that ended on it, for all products.

        Such a contract was billed before this contract was made.
        """
        contract = self.cycle.contract
        is_first = contract.pro_rates and self.cycle.start == contract.start_date
        return is_first and self._charged_by_others.issuperset(product_ids)

    @cached_property
    def _charged_by_others(self) -> set[str]:
        """The products of which contracts that ended on this one's first day have charged that day."""
        contract = self.cycle.contract
        return {
            product_id
            for seller in self._sellers
            if seller.contract_id != contract.id and seller.end.date() == contract.start_date.date()
            for billed in invoices.of_cycles_ending(self.tx, seller.contract_id, seller.end)
            for charge in billed.charges
            for product_id in charge.last_days
        }

    def group_line(self, number: int, group: ProductGroup, members: dict[str, SoldProduct]) -> ContractLine:
        """Return the line of a product group."""
        cycle = self.cycle
        # Units that a group commits to without a price cost that of its first product.
        prices = [price_terms(each.product, each.price_type) for each in members.values()]
        whole = priced_commitment(group.commitment, prices[0] if prices else PriceTerms())
        name = f"{cycle.contract.id}-group-{number}"
        # A group without products is sold by no other contract.
        product_ids = [each.product_id for each in members.values()] or [name]
        committed = self._pro_rated_commitment(whole, group.commitment, product_ids)
        return ContractLine(
            key=f"{cycle.contract.id}/group-{number}",
            product_id=name,
            name=group.display_name or name,
            usages=self.product_usages(members, committed, group.commitment),
            is_group=True,
            fee=self._fee(clamp(group.base_amount or ZERO), committed, group.commitment, product_ids),
            commitment=committed,
            since=cycles.commitment_start(cycle.contract, group.commitment, cycle.start),
            last_days=tuple(each for each in product_ids if self.charges_last_day([each])),
        )

    def product_usages(
        self, members: dict[str, SoldProduct], shared: CommitmentTerms, commitment: Commitment | None
    ) -> list[ProductUsage]:
        """Return the products with their usage; those without a commitment share their group's."""
        usages = {key: self._product_usage(key, sold, commitment) for key, sold in members.items()}
        sharing = [key for key, usage in usages.items() if not usage.priced.commitment.exists]
        spread = apply_commitment([usages[key].priced for key in sharing], shared)
        usages.update(
            {key: replace(usages[key], priced=priced) for key, priced in zip(sharing, spread, strict=True)}
        )
        return list(usages.values())

    def _product_usage(self, key: str, sold: SoldProduct, shared: Commitment | None) -> ProductUsage:
        cycle, product = self.cycle, sold.product
        terms, product_ids = price_terms(product, sold.price_type), [sold.product_id]
        whole = priced_commitment(product.commitment, terms)
        own = self._pro_rated_commitment(whole, product.commitment, product_ids)
        counted_by = product.commitment if own.exists else shared
        since = cycles.commitment_start(cycle.contract, counted_by, cycle.start)
        before = self.of(sold, since, cycle.start)
        consumes = bool(product.consumes_credit_product_ids)
        priced = PricedUsage(
            terms=terms,
            # A later figure may be smaller (method last): what was billed in earlier cycles stays billed.
            units=max(self.of(sold, since, cycle.end), before),
            units_before=before,
            fee=self._fee(terms.fee, own, product.commitment, product_ids),
            discounted=terms.is_discounted(cycles.completed_cycles(cycle.contract, cycle.start)),
            covered=usage_paid(self.tx, key, cycle.start) if consumes else NO_USAGE,
            invoiced=self.invoiced.get(key, NO_USAGE),
        )
        return ProductUsage(key, sold, apply_commitment([priced], own)[0], since)

    def _fee(
        self, fee: Decimal, committed: CommitmentTerms, commitment: Commitment | None, ids: Collection[str]
    ) -> Decimal:
        """Return the cycle's fee without usage.

        A commitment for several cycles is charged in the first of them that is billed.
        """
        cycle = self.cycle
        pro_rated = self._pro_rated(fee, ids)
        since = cycles.commitment_start(cycle.contract, commitment, cycle.start)
        billed = invoice.c.contract_id == cycle.contract.id, invoice.c.cycle_start.between(since, cycle.start)
        if since < cycle.start and self.tx.any(invoice, *billed, invoice.c.cycle_start < cycle.start):
            return pro_rated
        return exact_sum([pro_rated, committed.fee])

    def _pro_rated_commitment(
        self, committed: CommitmentTerms, commitment: Commitment | None, ids: Collection[str]
    ) -> CommitmentTerms:
        """Return the cycle's share of a commitment: of its price, and of what it includes."""
        contract = self.cycle.contract
        # A commitment for several cycles is for its whole period, so a short first cycle does not reduce it.
        if not contract.pro_rates or cycles.commitment_cycles(commitment, cycles.cycle_period(contract)) > 1:
            return committed
        return replace(
            committed,
            units=self._pro_rated(committed.units, ids),
            money=self._pro_rated(committed.money, ids),
            fee=self._pro_rated(committed.fee, ids),
        )

    def _pro_rated(self, amount: Decimal, product_ids: Collection[str]) -> Decimal:
        """Return the cycle's share of an amount for these products, by days, if the contract pro-rates."""
        cycle, contract = self.cycle, self.cycle.contract
        if not amount or not contract.pro_rates:
            return amount
        days, whole = cycles.billed_days(
            contract,
            cycle.start,
            cycle.end,
            with_last=self.charges_last_day(product_ids),
            without_first=self.first_day_is_charged(product_ids),
        )
        with localcontext(EXACT):
            share = (amount * days / whole).quantize(_SHARE_PRECISION)
            # Without zeros at its end, since consumption shows it: 22 and not 22.0000000000.
            return share.quantize(_ONE) if share == share.to_integral_value() else share.normalize()
