"""Names of the customers and products that rows of a page refer to by their ids."""

from __future__ import annotations

from collections.abc import Iterable

from billhook.sandbox.billing.catalog import CATALOG_PRODUCTS
from billhook.sandbox.billing.credits.credit_grants import CREDIT_PRODUCTS
from billhook.sandbox.billing.customers import CUSTOMERS
from billhook.sandbox.storage.tables.billing import credit_product
from billhook.sandbox.storage.tables.entities import catalog_product, customer
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["catalog_product_names", "credit_product_names", "customer_names"]

_CUSTOMERS = 200
"""As many are offered in a list to choose from."""


def customer_names(tx: Transaction, ids: Iterable[str | None] | None = None) -> dict[str, str]:
    """Return {id: name} of these customers, or of the newest ones; a customer without a name has its id."""
    if ids is None:
        found = CUSTOMERS.page(tx, _CUSTOMERS, None, newest_first=True).items
    else:
        found = CUSTOMERS.all(tx, customer.c.id.in_({one for one in ids if one}))
    return {one.id: one.name or one.external_id or one.id for one in found}


def credit_product_names(tx: Transaction, ids: Iterable[str]) -> dict[str, str]:
    """Return {id: name} of these credit products."""
    found = CREDIT_PRODUCTS.all(tx, credit_product.c.id.in_(set(ids)))
    return {one.id: one.name or one.id for one in found}


def catalog_product_names(tx: Transaction, ids: Iterable[str | None]) -> dict[str, str]:
    """Return {id: name} of these catalog products."""
    found = CATALOG_PRODUCTS.all(tx, catalog_product.c.id.in_({one for one in ids if one}))
    return {one.id: one.name for one in found}
