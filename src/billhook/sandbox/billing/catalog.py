"""What contracts may sell: catalog products, and plans that bundle products.

Source: spec, "Resources and their fields", Catalog product; Plan.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import select

from billhook.resources import CatalogProduct, ContractProduct, Plan
from billhook.sandbox.storage.columns import in_texts
from billhook.sandbox.storage.repository import Repository
from billhook.sandbox.storage.tables.billing import catalog_product, plan
from billhook.sandbox.storage.transaction import Transaction
from billhook.wire import strict_json

__all__ = [
    "BILLING_INTERVALS",
    "CATALOG_PRODUCTS",
    "PLANS",
    "plan_products",
    "product_names",
    "products_json",
]

CATALOG_PRODUCTS = Repository(catalog_product, CatalogProduct, "cat")
BILLING_INTERVALS = ("Monthly", "Quarterly", "Yearly")
PLANS = Repository(plan, Plan, "pln")


def product_names(tx: Transaction, product_ids: Collection[str]) -> dict[str, str]:
    """Return the names of these products by id, with one query. Unknown ids are left out."""
    if not product_ids:
        return {}
    which = in_texts(tx.connection, catalog_product.c.id, product_ids)
    return {product.id: product.name for product in CATALOG_PRODUCTS.all(tx, which)}


def plan_products(tx: Transaction, plan_ids: Collection[str]) -> dict[str, list[ContractProduct]]:
    """Return the products of each of these plans, by the plan's id, with one query."""
    if not plan_ids:
        return {}
    # Stored apart from the plan's document, which the API shows without products.
    which = in_texts(tx.connection, plan.c.id, plan_ids)
    rows = tx.connection.execute(select(plan.c.id, plan.c.products).where(which))
    return {
        row.id: [
            ContractProduct.from_wire(each)
            for each in strict_json.loads(row.products.encode())  # type: ignore[attr-defined]
        ]
        for row in rows
    }


def products_json(sold: Sequence[ContractProduct]) -> str:
    """Return products as the JSON that the plan's table stores."""
    return "[" + ",".join(each.to_json().decode() for each in sold) + "]"
