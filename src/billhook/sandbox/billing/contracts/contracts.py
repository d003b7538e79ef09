"""Contracts, as stored, what they sell, and which of them usage belongs to.

They sell catalog products; plans bundle products. Where several contracts of a customer sell the same, usage
belongs to the one that came into force first, among those that are in force at the time of the usage. A
measurement counts for a whole day: it belongs to the contract in force at the end of the day, or else to the
last one that was in force on that day. `contract_lifecycle` changes the state of a contract. Source: spec,
"Resources and their fields", Contract; Catalog product; Plan; "Endpoints", Contracts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field
from sqlalchemy import select

from billhook.fields.types import MaybeListOf
from billhook.resources import CatalogProduct, Contract, ContractProduct, NewContract, Plan, ProductGroup
from billhook.sandbox.billing.usage import meters
from billhook.sandbox.billing.usage.cycles import ContractRecord, cycle_at, midnight, renews
from billhook.sandbox.billing.usage.daily_usage import TimeSpan
from billhook.sandbox.billing.usage.meters import Meter
from billhook.sandbox.billing.usage.rating import price_type
from billhook.sandbox.clock import MAX_TIME
from billhook.sandbox.errors import not_found
from billhook.sandbox.storage.columns import in_texts
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import Repository
from billhook.sandbox.storage.tables import catalog_product, contract, plan


@dataclass(frozen=True, slots=True)
class Seller:
    """A contract that was or is in force, from `start` to before `end`, and the catalog products it sells."""

    contract_id: str
    start: datetime
    end: datetime
    product_ids: Collection[str]


def owned_spans(
    sellers: Sequence[Seller], contract_id: str, product_id: str, span: TimeSpan
) -> list[TimeSpan]:
    """Return the parts of `span` whose usage of a product belongs to the contract.

    `sellers` are all contracts of the customer, the one that came into force first at the beginning.
    """
    left = [span]
    for seller in sellers:
        if seller.contract_id == contract_id:
            break
        if product_id in seller.product_ids:
            left = [
                part
                for begin, end in left
                for part in ((begin, min(end, seller.start)), (max(begin, seller.end), end))
                if part[0] < part[1]
            ]
    return left


def last_days(sellers: Sequence[Seller], product_id: str, spans: Sequence[TimeSpan]) -> list[datetime]:
    """Return the midnights of days that end after one of `spans`, and whose measurement still belongs to it.

    That is so if no contract sells the product in the rest of the day.
    """
    own = [seller for seller in sellers if product_id in seller.product_ids and seller.start < seller.end]
    return [
        midnight(end)
        for _, end in spans
        if end > midnight(end)
        and not any(seller.end > end and seller.start.date() <= end.date() for seller in own)
    ]


def taken_over(sellers: Sequence[Seller], contract_id: str) -> Iterator[TimeSpan]:
    """Yield spans, of whole days, in which a contract may have taken usage from others as it came into force.

    From one that comes before it in `sellers` it takes no more than the measurement of its last day.
    """
    place, own = next((n, each) for n, each in enumerate(sellers) if each.contract_id == contract_id)
    for number, other in enumerate(sellers):
        first, last = max(own.start, other.start), min(own.end, other.end)
        if number != place and first.date() <= last.date():
            yield last if number < place else first, last


def is_handed_over(sellers: Sequence[Seller], contract_id: str, product_id: str, end: datetime) -> bool:
    """Return whether another contract that sells the product begins on the day on which this one ends."""
    return any(
        seller.contract_id != contract_id
        and product_id in seller.product_ids
        and seller.start < seller.end
        and seller.start.date() == end.date()
        for seller in sellers
    )


CATALOG_PRODUCTS = Repository(catalog_product, CatalogProduct, "cat")

Products = Annotated[MaybeListOf[ContractProduct], Field(description="Products that the plan sells.")]


class FullPlan(Plan, register=False):
    """A plan with its products, which GET /plans/{planId} does not show."""

    products: Products = None


PLANS = Repository(plan, FullPlan, "pln")

CONTRACTS = Repository(contract, ContractRecord, "con")


@dataclass(frozen=True, slots=True)
class SoldProduct:
    """A product as a contract sells it."""

    product_id: str
    """catalogProductId; without one `<contract id>-<n>`, counted from 1."""
    name: str
    product: ContractProduct
    price_type: str
    """The type of price that was agreed: Flat, PerUnit or Tiered."""
    meter: Meter | None
    """The meter of its usage; None as long as there is none."""
    group: ProductGroup | None = None
    """The product group that it belongs to."""
    counts: bool = True
    """False if an earlier product of the contract has the same meter: usage is billed once."""


def find(tx: Transaction, contract_id: str) -> ContractRecord:
    """Return the contract with this id or externalId; not_found without one, or if it was deleted.

    Source: spec, "Resources and their fields", Contract, externalId.
    """
    found = find_named(tx, contract_id)
    if found is None:
        raise not_found("contract")
    return found


def find_named(tx: Transaction, name: str) -> ContractRecord | None:
    """Return the contract with this id or externalId that is not deleted; None without one."""
    named_so = (contract.c.id == name) | (contract.c.external_id == name)
    return CONTRACTS.first(tx, named_so, contract.c.deleted_at.is_(None))


def in_force(tx: Transaction, customer_ids: Collection[str], at: datetime) -> list[ContractRecord]:
    """Return the contracts of these customers that are in force at that moment, oldest first."""
    of = contract.c
    is_active = of.status == "Active", of.deleted_at.is_(None)
    runs = of.start_date <= at, of.end_date.is_(None) | (of.end_date > at)
    return CONTRACTS.all(tx, in_texts(of.customer_id, customer_ids), *is_active, *runs)


def ever_in_force(
    tx: Transaction, customer_ids: Collection[str], since: datetime, until: datetime
) -> list[ContractRecord]:
    """Return these customers' contracts that were or are in force from `since` to `until`, oldest first."""
    of = contract.c
    # The end of an active contract is that of its term, which may be renewed.
    may_run = (of.status == "Active") | of.end_date.is_(None) | (of.end_date > since)
    began = of.in_force_at.is_not(None), of.start_date <= until
    found = CONTRACTS.all(tx, in_texts(of.customer_id, customer_ids), *began, may_run)
    return [each for each in found if term(each)[1] > since]


def sellers(tx: Transaction, contract: ContractRecord) -> list[Seller]:
    """Return the customer's contracts that were or are in force, in the order in which they have usage.

    Usage belongs to the contract that came into force first: a contract that is created or activated late
    takes no usage from contracts that may have billed it. If two came into force at the same time, usage
    belongs to the one that starts first, else to the one that was created first.
    """
    columns = CONTRACTS.table.c
    rows = tx.execute(
        select(columns.body)
        # Null while a contract is in review: it changes nothing of what others sell.
        .where(columns.customer_id == contract.customer_id, columns.in_force_at.is_not(None))
        .order_by(columns.in_force_at, columns.start_date, columns.seq)
    )
    found = [CONTRACTS.read(row) for row in rows]
    return [
        Seller(each.id, *term(each), {one.catalog_product_id for one, _ in sold if one.catalog_product_id})
        for each, sold in zip(found, _products(tx, found), strict=True)
    ]


def term(contract: ContractRecord) -> TimeSpan:
    """Return when the contract was in force.

    One that was deleted before its end was so up to the start of the cycle that was not billed.
    """
    end = MAX_TIME if contract.end_date is None or renews(contract) else contract.end_date
    deleted_at = contract.deleted_at
    # Expired although it renews: it ended while it was in review.
    if contract.status == "Expired":
        end = contract.end_date or MAX_TIME
    # The cycle that ran at the deletion is not billed, so its usage is free for other contracts. After the
    # contract's end none ran: all of them are billed.
    if deleted_at is not None and deleted_at < end:
        end = min(end, cycle_at(contract, deleted_at)[0])
    return contract.start_date, end


def display_name(contract: Contract) -> str:
    """Return the contract's name, or its id without one."""
    return contract.name or contract.id


def agreed(tx: Transaction, contract: NewContract | Contract, currency: str) -> dict[str, object]:
    """Return what a contract that is made or activated agrees on, by the names of ContractRecord on the wire.

    Later changes of a customer, a product or a meter change none of it.
    """
    sold = [product for product, _ in _products(tx, [contract])[0]]
    measured = meters.by_product(tx, {each.catalog_product_id for each in sold if each.catalog_product_id})
    types = [price_type(each, metered=each.catalog_product_id in measured) for each in sold]
    return {"billedIn": currency, "priceTypes": types}


def sold_products(tx: Transaction, contract: ContractRecord) -> list[SoldProduct]:
    """Return the products of the contract's plan; or its own products, then those of its groups."""
    [sold] = _products(tx, [contract])
    wanted = {product.catalog_product_id for product, _ in sold if product.catalog_product_id is not None}
    known = CATALOG_PRODUCTS.all(tx, in_texts(catalog_product.c.id, wanted)) if wanted else []
    names = {each.id: each.name for each in known}
    measured_by = meters.by_product(tx, wanted)
    found, counted = [], set[str]()
    for number, ((product, group), agreed_type) in enumerate(zip(sold, contract.price_types, strict=True), 1):
        catalog_id = product.catalog_product_id or ""
        # Without a catalog id there is no meter, so nothing would be counted twice.
        counts = catalog_id not in counted
        counted.add(catalog_id)
        product_id = catalog_id or f"{contract.id}-{number}"
        name = product.display_name or names.get(catalog_id) or product_id
        meter = measured_by.get(catalog_id)
        found.append(SoldProduct(product_id, name, product, agreed_type, meter, group, counts))
    return found


def _products(
    tx: Transaction, contracts: Sequence[NewContract | Contract]
) -> list[list[tuple[ContractProduct, ProductGroup | None]]]:
    """Return the products that each contract sells, with their groups; the plans are read by one query."""
    ids = {each.plan_id for each in contracts if each.plan_id}
    plans = {each.id: each.products or [] for each in PLANS.all(tx, in_texts(plan.c.id, ids))} if ids else {}
    return [
        [(product, None) for product in plans[each.plan_id]]
        if each.plan_id
        else [(product, group) for _, product, group in inline_products(each)]
        for each in contracts
    ]


def inline_products(
    contract: NewContract | Contract,
) -> Iterator[tuple[str, ContractProduct, ProductGroup | None]]:
    """Yield the products that the contract itself defines, each with its path and its group."""
    for n, product in enumerate(contract.products or []):
        yield f"products.{n}", product, None
    for m, group in enumerate(contract.product_groups or []):
        for n, product in enumerate(group.products or []):
            yield f"productGroups.{m}.products.{n}", product, group
