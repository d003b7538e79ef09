"""Invoices. Source: spec, "Endpoints", Invoices."""

from __future__ import annotations

from sqlalchemy import ColumnElement

from billhook.resources import BillingStatus, InvoiceQuery
from billhook.sandbox.billing import invoices
from billhook.sandbox.billing.invoice_fields import ShownInvoicePage, ShownInvoiceResponse
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.tables.billing import invoice
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("invoices", prefix="/invoices")


@GROUP.operation("GET", "", takes=InvoiceQuery, gives=ShownInvoicePage)
def list_all(call: Call[InvoiceQuery]) -> ShownInvoicePage:
    """List the invoices, oldest first: those issued at issuedAfter or later, and before issuedBefore."""
    given = call.given
    where: list[ColumnElement[bool]] = []
    if given.customer_id is not None:
        where.append(invoice.c.customer_id == given.customer_id)
    if given.billing_status is not None:
        if given.billing_status not in list(BillingStatus):
            raise invalid_request(f"billingStatus is one of {', '.join(BillingStatus)}", "billingStatus")
        where.append(invoice.c.billing_status == str(given.billing_status))
    if given.issued_after is not None:
        where.append(invoice.c.issued_at >= given.issued_after)
    if given.issued_before is not None:
        where.append(invoice.c.issued_at < given.issued_before)
    page = invoices.INVOICES.page(call.tx, limit_of(given), given.cursor, *where)
    return ShownInvoicePage(invoices=list(page.items), **page.fields())


@GROUP.operation("GET", "/{invoiceId}", gives=ShownInvoiceResponse)
def get(call: Call[None]) -> ShownInvoiceResponse:
    """Get an invoice."""
    return ShownInvoiceResponse(invoice=invoices.INVOICES.get(call.tx, call.path["invoiceId"]))
