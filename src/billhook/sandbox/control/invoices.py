"""Approving, sending and paying invoices; granting credits; exchange rates.

The specification names credit products and grants without describing them.
Source: spec, "Endpoints", Credits.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictBool, StrictStr

from billhook.fields.types import CreditKindWord, CustomerId, ExactDecimal, ListOf, UtcDatetime
from billhook.resources import CountedPage, CreditGrant, PageQuery
from billhook.sandbox.billing.contracts import customers
from billhook.sandbox.billing.credits import credit_grants, credit_pools
from billhook.sandbox.billing.credits.credit_pools import LedgerEntryView, LedgerReference
from billhook.sandbox.billing.invoicing import invoice_lifecycle, invoices
from billhook.sandbox.billing.invoicing.invoice_lifecycle import Payment
from billhook.sandbox.billing.invoicing.invoices import InvoiceResponseView
from billhook.sandbox.billing.usage import money
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Call, OperationGroup, SandboxResource

INVOICES_GROUP = OperationGroup(
    "_sandbox/invoices", prefix="/_sandbox/invoices", about="Approves, sends and pays invoices."
)
EXCHANGE_RATES_GROUP = OperationGroup(
    "_sandbox/exchangeRates", prefix="/_sandbox/exchangeRates", about="Shows and changes exchange rates."
)


@INVOICES_GROUP.operation("POST", "/{invoiceId}/approve", name="approve")
def approve_invoice(call: Call[None]) -> InvoiceResponseView:
    """Approve an invoice now, and send it."""
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    return InvoiceResponseView(invoice=invoice_lifecycle.approve(call.tx, invoice))


@INVOICES_GROUP.operation("POST", "/{invoiceId}/send", name="send")
def send_invoice(call: Call[None]) -> InvoiceResponseView:
    """Send an approved invoice once more."""
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    # Approval sends the invoice the first time: before it the due date is not known.
    if invoice.approved_at is None:
        raise invalid_request("the invoice is not approved yet: approve it first", code="not_approved")
    return InvoiceResponseView(invoice=invoice_lifecycle.send_invoice(call.tx, invoice))


@INVOICES_GROUP.operation("POST", "/{invoiceId}/payments", name="pay")
def pay_invoice(call: Call[Payment]) -> InvoiceResponseView:
    """Pay an invoice, or record a failed payment."""
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    return InvoiceResponseView(invoice=invoice_lifecycle.pay(call.tx, invoice, call.request))


class ExchangeRates(SandboxResource, register=False):
    """Exchange rates."""

    rates: Annotated[dict[str, ExactDecimal], Field(examples=[{"EUR": Decimal("1.10")}])]
    """US dollars for one unit, by currency code."""


@EXCHANGE_RATES_GROUP.operation("GET", "", name="show")
def show_exchange_rates(call: Call[None]) -> ExchangeRates:
    """Get the exchange rates."""
    return ExchangeRates(rates=money.rates(call.tx))


@EXCHANGE_RATES_GROUP.operation("PUT", "", name="change")
def change_exchange_rates(call: Call[ExchangeRates]) -> ExchangeRates:
    """Change some exchange rates, for invoices that are issued from now on."""
    return ExchangeRates(rates=money.set_rates(call.tx, call.request.rates))


CREDITS_GROUP = OperationGroup(
    "_sandbox/credits", prefix="/_sandbox", about="Creates credit products, and grants credits."
)


class DirectGrant(SandboxResource, register=False):
    """Credits to grant to a customer, without an invoice."""

    customer_id: CustomerId
    credit_amount: ExactDecimal
    """Number of credits."""
    credit_product_id: StrictStr | None = None
    """Id of the credit product; the oldest one by default."""
    balance_kind: CreditKindWord | None = None
    """Monetary or Unit; that of the credit product by default."""
    expiration_date: UtcDatetime | None = None
    """When the credits expire."""
    apply_automatically: StrictBool | None = None
    """True, the default, if usage draws them automatically."""


class LedgerEntryResponse(SandboxResource, register=False):
    """The ledger entry of a grant."""

    entry: LedgerEntryView
    """The entry."""


class CreditProductResponse(SandboxResource, register=False):
    """A credit product."""

    credit_product: credit_grants.CreditProduct
    """The credit product."""


class CreditProductPage(CountedPage, SandboxResource, register=False):
    """A page of credit products."""

    credit_products: ListOf[credit_grants.CreditProduct]
    """The credit products of this page."""


@CREDITS_GROUP.operation("POST", "/credits/grant")
def grant_credits(call: Call[DirectGrant]) -> LedgerEntryResponse:
    """Grant credits directly to a customer."""
    request = call.request
    customers.find_named(call.tx, request.customer_id)
    credit_grants.check_amount(request.credit_amount, "creditAmount")
    given = request.model_dump(exclude={"customer_id", "credit_amount"})
    credit_grant = CreditGrant(**given, grant_amount=request.credit_amount)
    # Such credits would expire in the transaction that grants them.
    if credit_grants.has_expired(call.tx, credit_grant):
        raise invalid_request("expirationDate must be in the future", "expirationDate")
    credit_grants.check_grant(credit_grant, "")
    entry_id = credit_grants.grant(call.tx, request.customer_id, credit_grant, LedgerReference())
    return LedgerEntryResponse(entry=credit_pools.find_entry(call.tx, str(entry_id)))


@CREDITS_GROUP.operation("POST", "/creditProducts", name="create")
def create_credit_product(call: Call[credit_grants.NewCreditProduct]) -> CreditProductResponse:
    """Create a credit product."""
    return CreditProductResponse(credit_product=credit_grants.create_credit_product(call.tx, call.request))


@CREDITS_GROUP.operation("GET", "/creditProducts", name="list_all")
def list_credit_products(call: Call[PageQuery]) -> CreditProductPage:
    """List the credit products, oldest first."""
    page = credit_grants.CREDIT_PRODUCTS.page(call.tx, call.request)
    return CreditProductPage(credit_products=page.items, **page.fields())
