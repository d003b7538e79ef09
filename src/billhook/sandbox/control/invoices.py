"""Approving, sending and paying invoices; granting credits; exchange rates and month-end reports.

The specification names credit products and grants without describing them.
Source: spec, "Endpoints", Credits.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StrictBool, StrictStr

from billhook.fields.types import CreditKindWord, CustomerId, ExactDecimal, ListOf, UtcDatetime
from billhook.resources import CreditGrant, PageQuery, Resource
from billhook.resources.base import CountedPage
from billhook.sandbox.billing import (
    credit_grants,
    credit_pools,
    customers,
    invoice_lifecycle,
    invoices,
    money,
    month_end,
)
from billhook.sandbox.billing.credit_grants import (
    CreditProduct,
    NewCreditProduct,
    check_amount,
    grant,
    has_expired,
)
from billhook.sandbox.billing.credit_pools import LedgerEntryView, LedgerReference
from billhook.sandbox.billing.invoices import InvoiceResponseView
from billhook.sandbox.billing.month_end import ReportResponse
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.options import check_key

INVOICES_GROUP = OperationGroup("_sandbox/invoices", prefix="/_sandbox/invoices")
EXCHANGE_RATES_GROUP = OperationGroup("_sandbox/exchangeRates", prefix="/_sandbox/exchangeRates")
REPORTS_GROUP = OperationGroup("_sandbox/reports", prefix="/_sandbox/reports")


class Outcome(StrEnum):
    """The outcome of a payment."""

    PAID = "paid"
    FAILED = "failed"


class Payment(Resource, register=False):
    """A payment to make, with its outcome."""

    outcome: Annotated[
        Outcome, Field(description="Outcome of the payment: paid or failed.", examples=["paid"])
    ]
    amount: Annotated[
        ExactDecimal | None,
        Field(description="Amount in the invoice's currency; all that is due by default.", examples=[]),
    ] = None
    failure_reason: Annotated[
        StrictStr | None, Field(description="Reason of the failure.", examples=["card_declined"])
    ] = None
    payment_method: Annotated[StrictStr | None, Field(description="Payment method; Card by default.")] = None


@INVOICES_GROUP.operation("POST", "/{invoiceId}/approve", name="approve", gives=InvoiceResponseView)
def approve_invoice(call: Call[None]) -> InvoiceResponseView:
    """Approve an invoice now, and send it."""
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    return InvoiceResponseView(invoice=invoice_lifecycle.approve(call.tx, invoice))


@INVOICES_GROUP.operation("POST", "/{invoiceId}/send", name="send", gives=InvoiceResponseView)
def send_invoice(call: Call[None]) -> InvoiceResponseView:
    """Send an approved invoice once more."""
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    # Approval sends the invoice the first time: before it the due date is not known.
    if invoice.approved_at is None:
        raise invalid_request("the invoice is not approved yet: approve it first", code="not_approved")
    return InvoiceResponseView(invoice=invoice_lifecycle.send_invoice(call.tx, invoice))


@INVOICES_GROUP.operation(
    "POST", "/{invoiceId}/payments", name="pay", takes=Payment, gives=InvoiceResponseView
)
def pay_invoice(call: Call[Payment]) -> InvoiceResponseView:
    """Pay an invoice, or record a failed payment."""
    request = call.request
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    if request.outcome is Outcome.PAID:
        # Probably the outcome is wrong: ignoring the reason would hide the mistake.
        if request.failure_reason is not None:
            raise invalid_request("a payment that is paid has no failureReason", "failureReason")
        paid = invoice_lifecycle.pay(call.tx, invoice, request.amount, request.payment_method)
        return InvoiceResponseView(invoice=paid)
    failed = invoice_lifecycle.record_failure(
        call.tx, invoice, request.amount, request.payment_method, request.failure_reason
    )
    return InvoiceResponseView(invoice=failed)


class ExchangeRates(Resource, register=False):
    """Exchange rates."""

    rates: Annotated[
        dict[str, ExactDecimal],
        Field(description="US dollars for one unit, by currency code.", examples=[{"EUR": Decimal("1.10")}]),
    ]


@EXCHANGE_RATES_GROUP.operation("GET", "", name="show", gives=ExchangeRates)
def show_exchange_rates(call: Call[None]) -> ExchangeRates:
    """Get the exchange rates."""
    return ExchangeRates(rates=money.rates(call.tx))


@EXCHANGE_RATES_GROUP.operation("PUT", "", name="change", takes=ExchangeRates, gives=ExchangeRates)
def change_exchange_rates(call: Call[ExchangeRates]) -> ExchangeRates:
    """Change some exchange rates, for invoices that are issued from now on."""
    return ExchangeRates(rates=money.set_rates(call.tx, call.request.rates))


@REPORTS_GROUP.operation("GET", "/{reportId}", name="get", gives=ReportResponse)
def get_report(call: Call[None]) -> ReportResponse:
    """Get a month-end report."""
    return ReportResponse(report=month_end.find_report(call.tx, call.path["reportId"]))


CREDITS_GROUP = OperationGroup("_sandbox/credits", prefix="/_sandbox")


class DirectGrant(Resource, register=False):
    """Credits to grant to a customer, without an invoice."""

    customer_id: CustomerId
    credit_amount: Annotated[ExactDecimal, Field(description="Number of credits.")]
    credit_product_id: Annotated[
        StrictStr | None, Field(description="Id of the credit product; the oldest one by default.")
    ] = None
    balance_kind: Annotated[
        CreditKindWord | None, Field(description="Monetary or Unit; that of the credit product by default.")
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
    customers.find_named(call.tx, request.customer_id)
    check_amount(request.credit_amount, "creditAmount")
    given = request.model_dump(exclude={"customer_id", "credit_amount"})
    credit_grant = CreditGrant(**given, grant_amount=request.credit_amount)
    # Such credits would expire in the transaction that grants them.
    if has_expired(call.tx, credit_grant):
        raise invalid_request("expirationDate must be in the future", "expirationDate")
    credit_grants.check_kind(request.balance_kind, "balanceKind")
    # An unknown id creates a credit product with this id, so it must be storable.
    if request.credit_product_id is not None:
        check_key(request.credit_product_id, "creditProductId")
    entry_id = grant(call.tx, request.customer_id, credit_grant, LedgerReference())
    return LedgerEntryResponse(entry=credit_pools.find_entry(call.tx, str(entry_id)))


@CREDITS_GROUP.operation(
    "POST", "/creditProducts", name="create", takes=NewCreditProduct, gives=CreditProductResponse
)
def create_credit_product(call: Call[NewCreditProduct]) -> CreditProductResponse:
    """Create a credit product."""
    return CreditProductResponse(credit_product=credit_grants.create_credit_product(call.tx, call.request))


@CREDITS_GROUP.operation("GET", "/creditProducts", name="list_all", takes=PageQuery, gives=CreditProductPage)
def list_credit_products(call: Call[PageQuery]) -> CreditProductPage:
    """List the credit products, oldest first."""
    page = credit_grants.CREDIT_PRODUCTS.page(call.tx, call.request)
    return CreditProductPage(credit_products=page.items, **page.fields())
