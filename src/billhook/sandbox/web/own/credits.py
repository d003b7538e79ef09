"""Granting credits, and credit products: the specification names both, and shows neither.

Source: spec, "Endpoints", Credits.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources import PageQuery, Resource
from billhook.resources.paging import CountedPage
from billhook.sandbox.billing import credit_ledger, credit_products
from billhook.sandbox.billing.credit_ledger import ShownLedgerEntry
from billhook.sandbox.billing.credit_products import CreditProduct, NewCreditProduct
from billhook.sandbox.billing.credits import check_amount, check_customer, grant
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.keys import check_key
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import CustomerId, Flag, ListOf, Moment, Number, Text

__all__ = ["GROUP"]

GROUP = Group("_sandbox/credits", prefix="/_sandbox")


class DirectGrant(Resource, register=False):
    """Credits for a customer, without an invoice."""

    customer_id: CustomerId
    credit_amount: Annotated[Number, Field(description="How many.")]
    credit_product_id: Annotated[
        Text | None, Field(description="Of which credit product; the first one there is if omitted.")
    ] = None
    balance_kind: Annotated[
        Text | None, Field(description="Monetary or Unit; that of the credit product if omitted.")
    ] = None
    expiration_date: Annotated[Moment | None, Field(description="When they expire.")] = None
    apply_automatically: Annotated[
        Flag | None, Field(description="Does usage draw them by itself? True if omitted.")
    ] = None


class LedgerEntryResponse(Resource, register=False):
    """What was written into the ledger."""

    entry: Annotated[ShownLedgerEntry, Field(description="The entry.")]


class CreditProductResponse(Resource, register=False):
    """A credit product."""

    credit_product: Annotated[CreditProduct, Field(description="The credit product.")]


class CreditProductPage(CountedPage, register=False):
    """A page of credit products."""

    credit_products: Annotated[ListOf[CreditProduct], Field(description="Those of this page.")]


@GROUP.operation("POST", "/credits/grant", takes=DirectGrant, gives=LedgerEntryResponse)
def grant_credits(call: Call[DirectGrant]) -> LedgerEntryResponse:
    """Grant credits directly to a customer."""
    given = call.given
    check_customer(call.tx, given.customer_id)
    check_amount(given.credit_amount, "creditAmount")
    if given.expiration_date is not None and given.expiration_date <= call.tx.now:
        raise invalid_request("expirationDate is over already", "expirationDate")
    credit_products.check_kind(given.balance_kind, "balanceKind")
    if given.credit_product_id is not None:
        check_key(given.credit_product_id, "creditProductId")
    entry_id = grant(
        call.tx, given.customer_id, given.credit_amount, credit_product_id=given.credit_product_id,
        kind=given.balance_kind, expires_at=given.expiration_date,
        automatic=given.apply_automatically is not False,
    )  # fmt: skip
    return LedgerEntryResponse(entry=credit_ledger.entry(call.tx, entry_id))


@GROUP.operation("POST", "/creditProducts", takes=NewCreditProduct, gives=CreditProductResponse)
def create(call: Call[NewCreditProduct]) -> CreditProductResponse:
    """Create a credit product."""
    return CreditProductResponse(credit_product=credit_products.add(call.tx, call.given))


@GROUP.operation("GET", "/creditProducts", takes=PageQuery, gives=CreditProductPage)
def list_all(call: Call[PageQuery]) -> CreditProductPage:
    """List the credit products, oldest first."""
    page = credit_products.PRODUCTS.page(call.tx, limit_of(call.given), call.given.cursor)
    return CreditProductPage(credit_products=page.items, **page.fields())
