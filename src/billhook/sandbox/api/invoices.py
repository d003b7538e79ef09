"""Invoices. Source: spec, "Endpoints", Invoices."""

from __future__ import annotations

from sqlalchemy import ColumnElement

from billhook.resources import BillingStatus, InvoiceQuery
from billhook.sandbox.billing.invoices import invoices
from billhook.sandbox.billing.invoices.invoice_records import InvoicePageView, InvoiceResponseView
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.storage.paging import page_limit
from billhook.sandbox.storage.tables.billing import invoice

__all__ = ["INVOICES_GROUP"]

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
    page = invoices.INVOICES.page(call.tx, page_limit(request), request.cursor, *where)
    return InvoicePageView(invoices=list(page.items), **page.fields())


@INVOICES_GROUP.operation("GET", "/{invoiceId}", gives=InvoiceResponseView)
def get(call: Call[None]) -> InvoiceResponseView:
    """Get an invoice."""
    return InvoiceResponseView(invoice=invoices.INVOICES.get(call.tx, call.path["invoiceId"]))
