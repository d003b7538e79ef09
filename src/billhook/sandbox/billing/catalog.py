"""The products that contracts may sell. Source: spec, "Resources and their fields", Catalog product."""

from __future__ import annotations

from collections.abc import Collection

from billhook.resources import CatalogProduct
from billhook.sandbox.refusals import not_found
from billhook.sandbox.storage.bulk import among
from billhook.sandbox.storage.shelf import Shelf
from billhook.sandbox.storage.tables.entities import catalog_product
from billhook.sandbox.transaction import Transaction

__all__ = ["PRODUCTS", "find", "names"]

PRODUCTS = Shelf(catalog_product, CatalogProduct, "cat")


def find(tx: Transaction, product_id: str) -> CatalogProduct:
    """The product with this id; a refusal, not_found, if there is none."""
    found = PRODUCTS.find(tx, product_id)
    if found is None:
        raise not_found("catalog product")
    return found


def names(tx: Transaction, product_ids: Collection[str]) -> dict[str, str]:
    """The names of these products by their ids, as far as they are there, by one query."""
    which = among(tx.connection, catalog_product.c.id, product_ids)
    return {product.id: product.name for product in PRODUCTS.all(tx, which)}
