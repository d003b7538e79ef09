"""A printable page for each invoice, at the address that webhooks give as its PDF.

A browser prints the page to PDF, so no PDF library is needed. The page needs no credentials, since people
open it from a link; the address cannot be guessed. Source: spec, "Events", invoicePdfUrl.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from flask import Response, current_app, render_template_string

from billhook.resources import Customer
from billhook.sandbox.billing.customers import CUSTOMERS
from billhook.sandbox.billing.invoices.invoice_records import PAGES_PATH, InvoiceRecord, is_valid_proof
from billhook.sandbox.billing.invoices.invoices import INVOICES
from billhook.sandbox.errors import not_found
from billhook.sandbox.service import Service

__all__ = ["INVOICE_PAGE_RULE", "invoice_page"]

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the link alone gives access, so it must not reach other sites
    "Cache-Control": "private, no-store",
}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Invoice {{ invoice.invoice_number }}</title>
<style>
body { font: 11pt/1.5 sans-serif; max-width: 46em; margin: 3em auto; padding: 0 1em; }
table { width: 100%; border-collapse: collapse; margin: 2em 0; }
th, td { text-align: left; padding: .3em .5em; border-bottom: 1px solid #ccc; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
</style>
</head>
<body>
<h1>Invoice {{ invoice.invoice_number }}</h1>
<p>{{ customer.legal_name or customer.name or customer.id }}
{%- if customer.address %}<br>{{ address }}{% endif %}</p>
<p>{{ invoice.name }}<br>
Issued {{ day(invoice.issued_at) }}{% if invoice.due_date %}, due {{ day(invoice.due_date) }}{% endif %}<br>
Status: {{ invoice.billing_status }}{% if invoice.is_trial %} (trial){% endif %}</p>
<table>
<tr><th>Product</th><th class="n">Units</th><th class="n">{{ invoice.currency }}</th></tr>
{% for line in invoice.line_items or [] -%}
<tr><td>{{ line.product_name }}</td><td class="n">{{ plain(line.units) }}</td>
<td class="n">{{ plain(line.revenue_breakdown.total) }}</td></tr>
{% endfor -%}
<tr><th>Total</th><th></th><th class="n">{{ plain(invoice.amount) }}</th></tr>
<tr><td>Paid</td><td></td><td class="n">{{ plain(invoice.amount_paid) }}</td></tr>
<tr><th>Due</th><th></th><th class="n">{{ plain(invoice.amount_due) }}</th></tr>
</table>
<p>An invoice of a sandbox: no payment is due.</p>
</body>
</html>
"""


INVOICE_PAGE_RULE = f"{PAGES_PATH}/<invoice_id>/<proof>"


def invoice_page(service: Service, invoice_id: str, proof: str) -> Response:
    """Return the page of an invoice at its unguessable address; 404 for any other address."""
    with service.transaction(writes=False) as tx:
        if not is_valid_proof(tx, invoice_id, proof):
            raise not_found("page")
        invoice = INVOICES.get(tx, invoice_id)
        customer = CUSTOMERS.get(tx, str(invoice.customer_id))
    return current_app.make_response((_rendered(invoice, customer), _HEADERS))


def _rendered(invoice: InvoiceRecord, customer: Customer) -> str:
    # Templates from strings escape HTML, too: names of customers and products may hold markup.
    return render_template_string(
        _PAGE, invoice=invoice, customer=customer, address=_address(customer), day=_day, plain=_plain
    )


def _address(customer: Customer) -> str:
    there = customer.address
    if there is None:
        return ""
    parts = (there.address_text, there.postal_code, there.city, there.state, there.country)
    return ", ".join(part for part in parts if part)


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def _plain(number: Decimal | None) -> str:
    """Format without an exponent."""
    return "" if number is None else f"{number:f}"
