"""Invoices: by month, in a table, and one with its lines; approving, sending and paying it."""

from __future__ import annotations

from flask import Response, request
from sqlalchemy import ColumnElement
from werkzeug.exceptions import NotFound

from billhook.sandbox.billing.invoices.invoice_records import page_path
from billhook.sandbox.billing.invoices.invoices import INVOICES
from billhook.sandbox.pages.charting import STATUS_TONES, invoiced_chart
from billhook.sandbox.pages.context import PAGE_ROWS, act, choice, context, cursor, pager, show
from billhook.sandbox.pages.names import customer_names
from billhook.sandbox.pages.routes import RouteTable
from billhook.sandbox.storage.tables.billing import invoice as invoice_table

__all__ = ["ROUTES"]

ROUTES = RouteTable()
_MONTHS = 12


@ROUTES.get("/invoices")
def invoices() -> Response:
    """Show what was invoiced by month, and the invoices, newest first."""
    status, customer_id = choice("status", STATUS_TONES), request.args.get("customer") or None
    where: list[ColumnElement[bool]] = []
    if status is not None:
        where.append(invoice_table.c.billing_status == status)
    if customer_id is not None:
        where.append(invoice_table.c.customer_id == customer_id)
    with context().runner.reading() as tx:
        page = INVOICES.page(tx, PAGE_ROWS, cursor(), *where, newest_first=True)
        return show(
            "invoices.html",
            chart=invoiced_chart(tx, _MONTHS, customer_id),
            page=page,
            pager=pager(page.next_cursor),
            names=customer_names(tx, [one.customer_id for one in page.items]),
            customers=sorted(customer_names(tx).items(), key=lambda one: one[1].casefold()),
            chosen={"status": status, "customer": customer_id},
            statuses=list(STATUS_TONES),
        )


@ROUTES.get("/invoices/<invoice_id>")
def invoice(invoice_id: str) -> Response:
    """Show one invoice with its lines."""
    with context().runner.reading() as tx:
        found = INVOICES.find(tx, invoice_id)
        if found is None:
            raise NotFound("There is no invoice with this id.")
        return show(
            "invoice.html",
            invoice=found,
            names=customer_names(tx, [found.customer_id]),
            printable=page_path(tx, found.id),
        )


@ROUTES.post("/invoices/<invoice_id>/approve")
def approve(invoice_id: str) -> Response:
    """Approve the invoice and send it."""
    return _change(invoice_id, "The invoice is approved and sent.", "approve")


@ROUTES.post("/invoices/<invoice_id>/send")
def send(invoice_id: str) -> Response:
    """Send the invoice once more."""
    return _change(invoice_id, "The invoice is sent once more.", "send")


@ROUTES.post("/invoices/<invoice_id>/pay")
def pay(invoice_id: str) -> Response:
    """Pay all that is due."""
    return _change(invoice_id, "The invoice is paid.", "payments", {"outcome": "paid"})


@ROUTES.post("/invoices/<invoice_id>/fail")
def fail(invoice_id: str) -> Response:
    """Record a payment that failed."""
    body = {"outcome": "failed", "failureReason": "card_declined"}
    return _change(invoice_id, "A payment has failed.", "payments", body)


def _change(invoice_id: str, done: str, name: str, body: dict[str, str] | None = None) -> Response:
    key = f"POST /_sandbox/invoices/{{invoiceId}}/{name}"
    return act(("invoice", {"invoice_id": invoice_id}), done, key, body, invoiceId=invoice_id)
