"""Invoices, by month and each with a printable page; and credits.

The printable page is at the address that webhooks give as the invoice's PDF: a browser prints it to PDF, in
any script and currency, and a PDF library would need a font for each. It needs no session, since people
open it from a link; the address cannot be guessed. Source: spec, "Events", invoicePdfUrl.
"""

from __future__ import annotations

from flask import Response, request
from sqlalchemy import ColumnElement
from werkzeug.exceptions import NotFound

from billhook.resources import Customer
from billhook.sandbox.billing import chart_series
from billhook.sandbox.billing.customers import CUSTOMERS
from billhook.sandbox.billing.invoices.invoice_records import is_valid_proof, page_path
from billhook.sandbox.billing.invoices.invoices import INVOICES
from billhook.sandbox.pages.context import (
    PAGE_ROWS,
    RouteTable,
    page_context,
    page_cursor,
    page_links,
    query_choice,
    render,
)
from billhook.sandbox.pages.names import customer_names, subject_names
from billhook.sandbox.pages.texts import STATUS_TONES, balance_chart, invoiced_chart
from billhook.sandbox.storage.tables.billing import invoice as invoice_table

ROUTES = RouteTable()
_MONTHS = 12
INVOICE_PAGE_RULE = "/<invoice_id>/<proof>"
_POOLS = 50
_COURSE = 40
"""Entries of the ledger in a pool's chart."""


@ROUTES.get("/invoices")
def invoices() -> Response:
    """Show what was invoiced by month, and the invoices, newest first."""
    status, customer_id = query_choice("status", STATUS_TONES), request.args.get("customer") or None
    where: list[ColumnElement[bool]] = []
    if status is not None:
        where.append(invoice_table.c.billing_status == status)
    if customer_id is not None:
        where.append(invoice_table.c.customer_id == customer_id)
    with page_context().runner.reading() as tx:
        page = INVOICES.newest(tx, PAGE_ROWS, page_cursor(), *where)
        return render(
            "invoices.html",
            chart=invoiced_chart(tx, _MONTHS, customer_id),
            page=page,
            pager=page_links(page.next_cursor),
            names=customer_names(tx, [one.customer_id for one in page.items]),
            customers=sorted(customer_names(tx).items(), key=lambda one: one[1].casefold()),
            chosen={"status": status, "customer": customer_id},
            statuses=list(STATUS_TONES),
        )


@ROUTES.get("/invoices/<invoice_id>")
def invoice(invoice_id: str) -> Response:
    """Show one invoice with its lines."""
    with page_context().runner.reading() as tx:
        found = INVOICES.find(tx, invoice_id)
        if found is None:
            raise NotFound("There is no invoice with this id.")
        return render(
            "invoice.html",
            invoice=found,
            names=subject_names(tx, [found.customer_id, found.contract_id]),
            printable=page_path(tx, found.id),
        )


def invoice_page(invoice_id: str, proof: str) -> Response:
    """Return the page of an invoice at its unguessable address; 404 for any other address."""
    with page_context().runner.reading() as tx:
        if not is_valid_proof(tx, invoice_id, proof):
            raise NotFound("There is no such page.")
        invoice = INVOICES.get(tx, invoice_id)
        customer = CUSTOMERS.get(tx, str(invoice.customer_id))
    response = render("invoice_page.html", invoice=invoice, customer=customer, address=_address(customer))
    # The link alone gives access, so it must not reach other sites.
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _address(customer: Customer) -> str:
    there = customer.address
    if there is None:
        return ""
    parts = (there.address_text, there.postal_code, there.city, there.state, there.country)
    return ", ".join(part for part in parts if part)


@ROUTES.get("/credits")
def credit() -> Response:
    """Show the credit pools, and the newest ledger entries."""
    customer_id = request.args.get("customer") or None
    with page_context().runner.reading() as tx:
        pools = chart_series.pool_page(tx, _POOLS, None, customer_id)
        entries = chart_series.newest_entries(tx, PAGE_ROWS, page_cursor(), customer_id)
        rows = [*pools.items, *entries.items]
        return render(
            "credits.html",
            pools=pools,
            courses={
                one.id: balance_chart(chart_series.balance_history(tx, one, _COURSE)) for one in pools.items
            },
            expiries=chart_series.next_expiries(tx, [one.id for one in pools.items]),
            entries=entries,
            pager=page_links(entries.next_cursor),
            names=customer_names(tx, [one.customer_id for one in rows]),
            product_names=subject_names(tx, [one.credit_product_id for one in rows]),
            customers=sorted(customer_names(tx).items(), key=lambda one: one[1].casefold()),
            chosen={"customer": customer_id},
        )
