"""Invoices and credits. Source: spec, "Endpoints", Invoices; Credits."""

from __future__ import annotations

from sqlalchemy import ColumnElement

from billhook.resources import (
    BillingStatus,
    CreditDeduction,
    CreditLedgerQuery,
    CreditTopUp,
    CreditTopUpResponse,
    InvoiceQuery,
)
from billhook.sandbox.billing import customers
from billhook.sandbox.billing.credits import credit_pools
from billhook.sandbox.billing.credits.credit_grants import check_grant, deduct, has_expired
from billhook.sandbox.billing.credits.credit_pools import LedgerPageView
from billhook.sandbox.billing.invoices import invoices
from billhook.sandbox.billing.invoices.invoice_records import InvoicePageView, InvoiceResponseView
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.storage.repository import page_limit
from billhook.sandbox.storage.tables.billing import invoice

INVOICES_GROUP = OperationGroup("invoices", prefix="/invoices")


@INVOICES_GROUP.operation("GET", "", takes=InvoiceQuery, gives=InvoicePageView)
def list_all(call: Call[InvoiceQuery]) -> InvoicePageView:
    """List the invoices, oldest first; issuedAfter is inclusive, issuedBefore exclusive."""
    request = call.request
    where: list[ColumnElement[bool]] = []
    if request.customer_id is not None:
        where.append(invoice.c.customer_id == request.customer_id)
    if request.billing_status is not None:
        # The model accepts any text, as future statuses of the service; here a typing error is more likely.
        if request.billing_status not in list(BillingStatus):
            raise invalid_request(f"billingStatus is one of {', '.join(BillingStatus)}", "billingStatus")
        where.append(invoice.c.billing_status == str(request.billing_status))
    if request.issued_after is not None:
        where.append(invoice.c.issued_at >= request.issued_after)
    if request.issued_before is not None:
        where.append(invoice.c.issued_at < request.issued_before)
    page = invoices.INVOICES.page(call.tx, request, *where)
    return InvoicePageView(invoices=list(page.items), **page.fields())


@INVOICES_GROUP.operation("GET", "/{invoiceId}", gives=InvoiceResponseView)
def get(call: Call[None]) -> InvoiceResponseView:
    """Get an invoice."""
    return InvoiceResponseView(invoice=invoices.INVOICES.get(call.tx, call.path["invoiceId"]))


CREDITS_GROUP = OperationGroup("credits", prefix="/credits")


@CREDITS_GROUP.operation("GET", "", takes=CreditLedgerQuery, gives=LedgerPageView)
def list_credits(call: Call[CreditLedgerQuery]) -> LedgerPageView:
    """List a customer's credit ledger, oldest first."""
    request = call.request
    # The ledger of an unknown customer would look like an empty one.
    customers.find_named(call.tx, request.customer_id)
    return credit_pools.ledger_page(call.tx, request.customer_id, page_limit(request), request.cursor)


@CREDITS_GROUP.operation("POST", "/deduct", takes=CreditDeduction)
def deduct_credits(call: Call[CreditDeduction]) -> None:
    """Subtract credits from a customer's account."""
    customers.find_named(call.tx, call.request.customer_id)
    deduct(call.tx, call.request.customer_id, call.request.credit_amount)


@CREDITS_GROUP.operation("POST", "/top-up", takes=CreditTopUp, gives=CreditTopUpResponse)
def top_up(call: Call[CreditTopUp]) -> CreditTopUpResponse:
    """Invoice a customer for credits, which are granted when the invoice is approved."""
    customer_id, grant = call.request.customer_id, call.request.credit_grant
    customers.check_active(customers.find_named(call.tx, customer_id))
    # Checked now: the grant is made days later, where no request could be refused.
    check_grant(grant, "creditGrant")
    # Credits are granted at approval: they would be expired by then.
    if has_expired(call.tx, grant):
        raise invalid_request("expirationDate must be in the future", "creditGrant.expirationDate")
    invoice_id = invoices.issue_top_up_invoice(call.tx, customer_id, grant)
    return CreditTopUpResponse(invoice_id=invoice_id, customer_id=customer_id)
