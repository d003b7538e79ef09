"""A printable page for each invoice, at the address that webhooks give as its PDF.

A browser prints the page to PDF, in any script and currency: a PDF library would need a font for each. The
page needs no session, since people open it from a link; the address cannot be guessed. Source: spec,
"Events", invoicePdfUrl.
"""

from __future__ import annotations

from flask import Response
from werkzeug.exceptions import NotFound

from billhook.resources import Customer
from billhook.sandbox.billing.customers import CUSTOMERS
from billhook.sandbox.billing.invoices.invoice_records import is_valid_proof
from billhook.sandbox.billing.invoices.invoices import INVOICES
from billhook.sandbox.pages.context import context, show

__all__ = ["INVOICE_PAGE_RULE", "invoice_page"]

INVOICE_PAGE_RULE = "/<invoice_id>/<proof>"


def invoice_page(invoice_id: str, proof: str) -> Response:
    """Return the page of an invoice at its unguessable address; 404 for any other address."""
    with context().runner.reading() as tx:
        if not is_valid_proof(tx, invoice_id, proof):
            raise NotFound("There is no such page.")
        invoice = INVOICES.get(tx, invoice_id)
        customer = CUSTOMERS.get(tx, str(invoice.customer_id))
    response = show("invoice_page.html", invoice=invoice, customer=customer, address=_address(customer))
    # The link alone gives access, so it must not reach other sites.
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _address(customer: Customer) -> str:
    there = customer.address
    if there is None:
        return ""
    parts = (there.address_text, there.postal_code, there.city, there.state, there.country)
    return ", ".join(part for part in parts if part)
