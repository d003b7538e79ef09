"""Credit products: the products that credits pay for. The specification shows only their identifier.

Source: spec, "Endpoints", Credits; "States and transitions", Other resources.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from billhook.events import CreditKind
from billhook.resources import Resource, StoredResource
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.limits import check_key
from billhook.sandbox.storage.repository import Repository, request_document
from billhook.sandbox.storage.tables.billing import credit_product
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["CREDIT_PRODUCTS", "CreditProduct", "NewCreditProduct", "check_kind", "create", "find_or_create"]

_Kind = Annotated[
    StrictStr | None, Field(description="Kind of the balance: Monetary or Unit.", examples=["Monetary"])
]


class NewCreditProduct(Resource, register=False):
    """A credit product to create."""

    name: Annotated[StrictStr, Field(description="Name of the credit product.", examples=["Starter credits"])]
    balance_kind: _Kind = None


class CreditProduct(StoredResource, NewCreditProduct, register=False):
    """A credit product."""


CREDIT_PRODUCTS = Repository(credit_product, CreditProduct, "crp")


def create(tx: Transaction, request: NewCreditProduct) -> CreditProduct:
    """Create a credit product; of kind Monetary by default."""
    check_kind(request.balance_kind, "balanceKind")
    data = {"balanceKind": str(CreditKind.MONETARY), **_present_fields(request)}
    return CREDIT_PRODUCTS.add(tx, data)


def find_or_create(tx: Transaction, product_id: str | None, kind: str | None) -> CreditProduct:
    """Return the credit product with this id, created if necessary; without an id, the first of the kind."""
    if product_id is None:
        # A grant without a kind may use a product of either kind.
        found = (each for each in CREDIT_PRODUCTS.all(tx) if kind in (None, each.balance_kind))
        return next(found, None) or create(tx, NewCreditProduct(name="Credits", balance_kind=kind))
    # The id is the user's own, so it may be any text; the name starts out the same.
    check_key(product_id, "creditProductId")
    data = {"name": product_id, "balanceKind": kind or str(CreditKind.MONETARY)}
    return CREDIT_PRODUCTS.find(tx, product_id) or CREDIT_PRODUCTS.add(tx, data, resource_id=product_id)


def check_kind(kind: str | None, param: str) -> None:
    """Reject an unknown kind of credits. Source: spec, "Events", creditKind."""
    if kind is not None and kind not in set(CreditKind):
        raise invalid_request(f"{param} must be {' or '.join(CreditKind)}", param)


def _present_fields(request: NewCreditProduct) -> dict[str, object]:
    # A null means the default, which it would otherwise replace.
    data = request_document(request)
    return {name: value for name, value in data.items() if value is not None}
