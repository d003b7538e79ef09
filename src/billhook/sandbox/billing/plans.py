"""Plans: what contracts may be made of. Source: spec, "Resources and their fields", Plan."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from billhook.resources import ContractProduct, Plan
from billhook.sandbox.storage.shelf import Shelf
from billhook.sandbox.storage.tables.entities import plan
from billhook.sandbox.transaction import Transaction
from billhook.wire import strict_json

__all__ = ["BILLING_INTERVALS", "PLANS", "as_text", "products"]

BILLING_INTERVALS = ("Monthly", "Quarterly", "Yearly")

PLANS = Shelf(plan, Plan, "pln")


def products(tx: Transaction, plan_ids: Sequence[str]) -> dict[str, list[ContractProduct]]:
    """What each of these plans sells, by the plan's id. At most 1000 at once."""
    rows = tx.connection.execute(select(plan.c.id, plan.c.products).where(plan.c.id.in_(plan_ids)))
    return {
        row.id: [
            ContractProduct.from_wire(each)
            for each in strict_json.loads(row.products.encode())  # type: ignore[attr-defined]
        ]
        for row in rows
    }


def as_text(sold: Sequence[ContractProduct]) -> str:
    """Products as they lie in the table."""
    return "[" + ",".join(each.to_json().decode() for each in sold) + "]"
