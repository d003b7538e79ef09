"""Credit products: what credits are of. The specification shows their identifier alone.

Source: spec, "Endpoints", Credits; "States and transitions", Other resources.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.events import CreditKind
from billhook.resources import Resource, Stored
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.documents import as_sent
from billhook.sandbox.storage.keys import check_key
from billhook.sandbox.storage.shelf import Shelf
from billhook.sandbox.storage.tables.credit import credit_product
from billhook.sandbox.transaction import Transaction
from billhook.wire.fields import Text

__all__ = ["PRODUCTS", "CreditProduct", "NewCreditProduct", "add", "check_kind", "known"]

_Kind = Annotated[Text | None, Field(description="What is counted: Monetary or Unit.", examples=["Monetary"])]


class NewCreditProduct(Resource, register=False):
    """A credit product that is to be made."""

    name: Annotated[Text, Field(description="Name.", examples=["Starter credits"])]
    balance_kind: _Kind = None


class CreditProduct(Stored, NewCreditProduct, register=False):
    """A credit product."""


PRODUCTS = Shelf(credit_product, CreditProduct, "crp")


def add(tx: Transaction, given: NewCreditProduct) -> CreditProduct:
    """Make one; of kind Monetary if nothing is said."""
    check_kind(given.balance_kind, "balanceKind")
    data = {"balanceKind": str(CreditKind.MONETARY), **_given(given)}
    return PRODUCTS.add(tx, data)


def known(tx: Transaction, product_id: str | None, kind: str | None) -> CreditProduct:
    """The credit product with this id, made if it is not there; without an id, the first of the kind."""
    if product_id is None:
        found = (each for each in PRODUCTS.all(tx) if kind in (None, each.balance_kind))
        return next(found, None) or add(tx, NewCreditProduct(name="Credits", balance_kind=kind))
    check_key(product_id, "creditProductId")
    data = {"name": product_id, "balanceKind": kind or str(CreditKind.MONETARY)}
    return PRODUCTS.find(tx, product_id) or PRODUCTS.add(tx, data, resource_id=product_id)


def check_kind(kind: str | None, param: str) -> None:
    """Refuse what is no kind of credits. Source: spec, "Events", creditKind."""
    if kind is not None and kind not in set(CreditKind):
        raise invalid_request(f"{param} is {' or '.join(CreditKind)}", param)


def _given(given: NewCreditProduct) -> dict[str, object]:
    data = as_sent(given)
    return {name: value for name, value in data.items() if value is not None}
