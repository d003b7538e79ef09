"""Granting credits, and credit products: the specification names both without describing them.

Source: spec, "Endpoints", Credits.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictStr

from billhook.resources import PageQuery, Resource
from billhook.resources.paging import CountedPage
from billhook.sandbox.billing.credits import credit_pools, credit_products
from billhook.sandbox.billing.credits.credit_grants import check_amount, check_customer_exists, grant
from billhook.sandbox.billing.credits.credit_pools import LedgerEntryView
from billhook.sandbox.billing.credits.credit_products import CreditProduct, NewCreditProduct
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.limits import check_key
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.storage.paging import page_limit
from billhook.wire.fields import CustomerId, ExactDecimal, ListOf, UtcDatetime

__all__ = ["CREDITS_GROUP"]

CREDITS_GROUP = OperationGroup("_sandbox/credits", prefix="/_sandbox")


class DirectGrant(Resource, register=False):
    """Credits to grant to a customer, without an invoice."""

    customer_id: CustomerId
    credit_amount: Annotated[ExactDecimal, Field(description="Number of credits.")]
    credit_product_id: Annotated[
        StrictStr | None, Field(description="Id of the credit product; the oldest one by default.")
    ] = None
    balance_kind: Annotated[
        StrictStr | None, Field(description="Monetary or Unit; that of the credit product by default.")
    ] = None
    expiration_date: Annotated[UtcDatetime | None, Field(description="When the credits expire.")] = None
    apply_automatically: Annotated[
        StrictBool | None, Field(description="True, the default, if usage draws them automatically.")
    ] = None


class LedgerEntryResponse(Resource, register=False):
    """The ledger entry of a grant."""

    entry: Annotated[LedgerEntryView, Field(description="The entry.")]


class CreditProductResponse(Resource, register=False):
    """A credit product."""

    credit_product: Annotated[CreditProduct, Field(description="The credit product.")]


class CreditProductPage(CountedPage, register=False):
    """A page of credit products."""

    credit_products: Annotated[ListOf[CreditProduct], Field(description="The credit products of this page.")]


@CREDITS_GROUP.operation("POST", "/credits/grant", takes=DirectGrant, gives=LedgerEntryResponse)
def grant_credits(call: Call[DirectGrant]) -> LedgerEntryResponse:
    """Grant credits directly to a customer."""
    request = call.request
    check_customer_exists(call.tx, request.customer_id)
    check_amount(request.credit_amount, "creditAmount")
    # Such credits would expire in the transaction that grants them.
    if request.expiration_date is not None and request.expiration_date <= call.tx.now:
        raise invalid_request("expirationDate must be in the future", "expirationDate")
    credit_products.check_kind(request.balance_kind, "balanceKind")
    # An unknown id creates a credit product with this id, so it must be storable.
    if request.credit_product_id is not None:
        check_key(request.credit_product_id, "creditProductId")
    # A null means the default, as if the field was left out.
    entry_id = grant(
        call.tx, request.customer_id, request.credit_amount, credit_product_id=request.credit_product_id,
        kind=request.balance_kind, expires_at=request.expiration_date,
        automatic=request.apply_automatically is not False,
    )  # fmt: skip
    return LedgerEntryResponse(entry=credit_pools.find_entry(call.tx, entry_id))


@CREDITS_GROUP.operation("POST", "/creditProducts", takes=NewCreditProduct, gives=CreditProductResponse)
def create(call: Call[NewCreditProduct]) -> CreditProductResponse:
    """Create a credit product."""
    return CreditProductResponse(credit_product=credit_products.create(call.tx, call.request))


@CREDITS_GROUP.operation("GET", "/creditProducts", takes=PageQuery, gives=CreditProductPage)
def list_all(call: Call[PageQuery]) -> CreditProductPage:
    """List the credit products, oldest first."""
    page = credit_products.CREDIT_PRODUCTS.page(call.tx, page_limit(call.request), call.request.cursor)
    return CreditProductPage(credit_products=page.items, **page.fields())
