"""Names for ids: what pages show in their place, and what forms offer to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy import select

from billhook.events import EVENT_TYPES
from billhook.resources import Customer, StoredResource
from billhook.sandbox.billing.contracts.contracts import CATALOG_PRODUCTS, CONTRACTS, PLANS
from billhook.sandbox.billing.credits.credit_grants import CREDIT_PRODUCTS
from billhook.sandbox.billing.customers import CUSTOMERS
from billhook.sandbox.billing.invoices.invoices import INVOICES
from billhook.sandbox.billing.usage.meters import METERS
from billhook.sandbox.pages.texts import format_amount
from billhook.sandbox.storage.repository import Repository
from billhook.sandbox.storage.tables.billing import credit_lot, credit_pool
from billhook.sandbox.storage.transaction import Transaction

_OFFERED = 200
"""As many are offered in a list to choose from, the newest first."""
_NAMED: Mapping[str, Repository[Any]] = MappingProxyType(
    {
        "catalogProductId": CATALOG_PRODUCTS,
        "contractId": CONTRACTS,
        "creditProductId": CREDIT_PRODUCTS,
        "customerId": CUSTOMERS,
        "meterId": METERS,
        "planId": PLANS,
    }
)
"""The fields of requests that hold the id of something with a name."""


def name_of(one: StoredResource) -> str:
    """Return the name of a resource, or its id without one; of a customer also the external id."""
    external_id = one.external_id if isinstance(one, Customer) else None
    return str(getattr(one, "name", None) or external_id or one.id)


def names_of(tx: Transaction, of: Repository[Any], ids: Iterable[str | None] | None = None) -> dict[str, str]:
    """Return {id: name} of these resources, or of the newest ones."""
    if ids is None:
        found = of.newest(tx, _OFFERED).items
    else:
        found = of.all(tx, of.table.c.id.in_({one for one in ids if one}))
    return {one.id: name_of(one) for one in found}


def customer_names(tx: Transaction, ids: Iterable[str | None] | None = None) -> dict[str, str]:
    """Return {id: name} of these customers, or of the newest ones."""
    return names_of(tx, CUSTOMERS, ids)


def newest(tx: Transaction, of: Repository[Any]) -> str | None:
    """Return the id of the newest resource of a kind; None without one."""
    return next((one.id for one in of.newest(tx, 1).items), None)


def options_for(tx: Transaction) -> Callable[[str], list[tuple[str, str]]]:
    """Return what a form offers for a field of a name: names for ids, event types; nothing for others."""

    def options(field: str) -> list[tuple[str, str]]:
        if field in _NAMED:
            return list(names_of(tx, _NAMED[field]).items())
        if field == "eventType":
            return [(name, name) for name in sorted(EVENT_TYPES)]
        if field == "customerAlias":
            known = CUSTOMERS.newest(tx, _OFFERED).items
            return [((one.aliases or [one.external_id or one.id])[0], name_of(one)) for one in known]
        if field == "invoiceId":
            ids = [one.id for one in INVOICES.newest(tx, _OFFERED).items]
            return list(_invoice_names(tx, ids).items())
        return []

    return options


def subject_names(tx: Transaction, ids: Iterable[object]) -> dict[str, str]:
    """Return {id: name} of those that are ids of customers, contracts, invoices, products or credits."""
    wanted = {one for one in ids if isinstance(one, str)}
    lots = select(credit_lot.c.id, credit_pool.c.customer_id).select_from(credit_lot).join(credit_pool)
    rows = tx.connection.execute(lots.where(credit_lot.c.id.in_(wanted)))
    owners = {row.id: row.customer_id for row in rows}
    customers = customer_names(tx, {*wanted, *owners.values()})
    names = {lot_id: f"credits of {customers[owner]}" for lot_id, owner in owners.items()}
    for of in (CONTRACTS, CREDIT_PRODUCTS, CATALOG_PRODUCTS):
        names |= names_of(tx, of, wanted)
    return names | customers | _invoice_names(tx, wanted)


def _invoice_names(tx: Transaction, ids: Iterable[str]) -> dict[str, str]:
    found = INVOICES.all(tx, INVOICES.table.c.id.in_(set(ids)))
    customers = customer_names(tx, [one.customer_id for one in found])
    return {
        one.id: f"invoice {one.invoice_number} of {customers.get(one.customer_id or '', '')}"
        f" ({format_amount(one.amount)} {one.currency})"
        for one in found
    }
