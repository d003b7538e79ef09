"""Contracts: finding them, and what they sell. What becomes of them is in `contract_life`.

Source: spec, "Resources and their fields", Contract; "Endpoints", Contracts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select, tuple_

from billhook.resources import Contract, ContractProduct, NewContract, ProductGroup
from billhook.sandbox.billing import catalog, custom_fields, meters, plans
from billhook.sandbox.billing.contract_terms import (
    KeptContract,
    commitment_start,
    cycle_at,
    cycles_before,
    days_of,
    is_for_several_cycles,
    next_end,
    past_cycles,
    renews,
)
from billhook.sandbox.billing.meter_fields import Meter
from billhook.sandbox.billing.usage import Span
from billhook.sandbox.periods import LAST
from billhook.sandbox.refusals import not_found
from billhook.sandbox.storage.shelf import Shelf
from billhook.sandbox.storage.tables.billing import contract
from billhook.sandbox.transaction import Transaction

__all__ = [
    "CONTRACTS",
    "KeptContract",
    "SoldProduct",
    "active",
    "commitment_start",
    "cycle_at",
    "cycles_before",
    "days_of",
    "find",
    "has_any",
    "in_force",
    "inline_products",
    "is_for_several_cycles",
    "is_measured_to",
    "name_of",
    "next_end",
    "older_terms",
    "past_cycles",
    "products",
    "renews",
    "shown",
]

CONTRACTS = Shelf(contract, KeptContract, "con")


@dataclass(frozen=True, slots=True)
class SoldProduct:
    """A product as a contract sells it."""

    product_id: str
    """catalogProductId; without one `<contract id>-<n>`, counted from 1."""
    name: str
    product: ContractProduct
    meter: Meter | None
    """What measures its usage, if anything does."""
    contract: KeptContract
    group: ProductGroup | None = None
    """The group that it is in."""
    counts: bool = True
    """Does its usage count for it? Not if a line before it in the same contract has the same meter."""


def find(tx: Transaction, contract_id: str) -> KeptContract:
    """The contract with this id or externalId; refused if there is none or it was deleted.

    Source: spec, "Resources and their fields", Contract, externalId.
    """
    named_so = (contract.c.id == contract_id) | (contract.c.external_id == contract_id)
    found = CONTRACTS.first(tx, named_so, contract.c.deleted_at.is_(None))
    if found is None:
        raise not_found("contract")
    return found


def active(tx: Transaction, customer_id: str, at: datetime) -> list[KeptContract]:
    """The customer's contracts that are in force at that moment, oldest first."""
    return in_force(tx, [customer_id], at)


def in_force(tx: Transaction, customer_ids: Collection[str], at: datetime) -> list[KeptContract]:
    """The same of several customers, by one query. At most 1000 of them."""
    return CONTRACTS.all(
        tx,
        contract.c.customer_id.in_(customer_ids),
        contract.c.status == "Active",
        contract.c.deleted_at.is_(None),
        contract.c.start_at <= at,
        contract.c.end_at.is_(None) | (contract.c.end_at > at),
    )


def is_measured_to(tx: Transaction, contract: KeptContract, end: datetime) -> bool:
    """Does a measurement of the day of `end` count to the cycle that ends then? It is of the whole day.

    It counts for the cycle that begins on that day. With the end of the contract none does: then it counts
    for the last one, unless another contract of the customer begins on that day.
    """
    midnight = end.replace(hour=0, minute=0, second=0, microsecond=0)
    if end == midnight or end != contract.end_date or renews(contract):
        return False
    next_day = midnight + timedelta(days=1)
    columns = CONTRACTS.table.c
    following = select(columns.seq).where(
        columns.customer_id == contract.customer_id,
        columns.id != contract.id,
        columns.deleted_at.is_(None),
        columns.start_at >= midnight,
        columns.start_at < next_day,
    )
    return tx.connection.execute(following.limit(1)).first() is None


def older_terms(tx: Transaction, given: KeptContract) -> list[tuple[Span, frozenset[str]]]:
    """When older contracts of the same customer are in force, and the meters of what they sell.

    Usage goes to the contract that came into force first: one that is made or activated late takes none from
    those that may have billed it. Of two that did so together it goes to the one that began first, or else
    that was made first.
    """
    columns = CONTRACTS.table.c
    order = (columns.in_force_at, columns.start_at, columns.seq)
    own = [select(column).where(columns.id == given.id).scalar_subquery() for column in order]
    older = CONTRACTS.all(tx, columns.customer_id == given.customer_id, tuple_(*order) < tuple_(*own))
    return [
        (_term(each), frozenset(sold.meter.id for sold in products(tx, each) if sold.meter)) for each in older
    ]


def _term(contract: KeptContract) -> Span:
    """When it was in force; of a deleted one, up to the cycle that was not billed any more."""
    end = LAST if contract.end_date is None or renews(contract) else contract.end_date
    deleted_at = contract.deleted_at
    if contract.status == "Expired":
        end = contract.end_date or LAST
    if deleted_at is not None:
        end = min(end, cycle_at(contract, deleted_at)[0])
    return contract.start_date, end


def has_any(tx: Transaction, customer_id: str) -> bool:
    """Has the customer a contract that is not deleted, in whatever state?"""
    there = select(contract.c.seq).where(
        contract.c.customer_id == customer_id, contract.c.deleted_at.is_(None)
    )
    return tx.connection.execute(there.limit(1)).first() is not None


def name_of(contract: Contract) -> str:
    """Its name; its id, if it has none."""
    return contract.name or contract.id


def products(tx: Transaction, contract: KeptContract) -> list[SoldProduct]:
    """What it sells: its plan's products as they are, or its own and then those of its groups."""
    if contract.plan_id:
        of_plan = plans.products(tx, [contract.plan_id])[contract.plan_id]
        sold: list[tuple[ContractProduct, ProductGroup | None]] = [(product, None) for product in of_plan]
    else:
        sold = [(product, group) for _, product, group in inline_products(contract)]
    wanted = {product.catalog_product_id for product, _ in sold if product.catalog_product_id is not None}
    names = catalog.names(tx, wanted)
    measured_by = meters.of_products(tx, wanted)
    found, counted = [], set[str]()
    for number, (product, group) in enumerate(sold, 1):
        catalog_id = product.catalog_product_id or ""
        counts = catalog_id not in counted
        counted.add(catalog_id)
        product_id = catalog_id or f"{contract.id}-{number}"
        name = product.display_name or names.get(catalog_id) or product_id
        meter = measured_by.get(catalog_id)
        found.append(SoldProduct(product_id, name, product, meter, contract, group, counts))
    return found


def inline_products(
    given: NewContract | Contract,
) -> Iterator[tuple[str, ContractProduct, ProductGroup | None]]:
    """The products that a contract defines itself, each with its path and its group."""
    for n, product in enumerate(given.products or []):
        yield f"products.{n}", product, None
    for m, group in enumerate(given.product_groups or []):
        for n, product in enumerate(group.products or []):
            yield f"productGroups.{m}.products.{n}", product, group


def shown(tx: Transaction, stored: Sequence[KeptContract]) -> list[Contract]:
    """These contracts as the service shows them: with the defaults of custom fields."""
    known = custom_fields.definitions(tx, "Contract")
    if not known:
        return list(stored)
    return [
        each.model_copy(
            update={"custom_field_values": custom_fields.with_defaults(known, each.custom_field_values or [])}
        )
        for each in stored
    ]
