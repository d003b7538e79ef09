"""The products that contracts may sell. Source: spec, "Resources and their fields", Catalog product."""

from __future__ import annotations

from collections.abc import Collection

from billhook.resources import CatalogProduct
from billhook.sandbox.storage.bulk import among
from billhook.sandbox.storage.shelf import Shelf
from billhook.sandbox.storage.tables.entities import catalog_product
from billhook.sandbox.transaction import Transaction

__all__ = ["PRODUCTS", "names"]

PRODUCTS = Shelf(catalog_product, CatalogProduct, "cat")


def names(tx: Transaction, product_ids: Collection[str]) -> dict[str, str]:
    """The names of these products by their ids, as far as they are there, by one query."""
    which = among(tx.connection, catalog_product.c.id, product_ids)
    return {product.id: product.name for product in PRODUCTS.all(tx, which)}
