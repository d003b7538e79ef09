"""Customers with their consumption and credits; contracts; and invoices, each with a printable page.

The printable page is at the address that webhooks give as the invoice's PDF: a browser prints it to PDF, in
any script and currency, and a PDF library would need a font for each. It needs no session, since people
open it from a link; the address cannot be guessed. Source: spec, "Events", invoicePdfUrl.
"""

from __future__ import annotations

from typing import Any

from flask import Response, request
from sqlalchemy import select
from werkzeug.exceptions import NotFound

from billhook.pages.text import indented_json
from billhook.resources import Customer
from billhook.sandbox.billing.contracts import contracts as stored_contracts
from billhook.sandbox.billing.contracts.contracts import CONTRACTS
from billhook.sandbox.billing.contracts.customers import CUSTOMERS, customer_views
from billhook.sandbox.billing.invoicing import metered_items
from billhook.sandbox.billing.invoicing.invoices import INVOICES, is_valid_proof, page_path
from billhook.sandbox.billing.usage import cycles
from billhook.sandbox.pages.context import PAGE_ROWS, page_cursor, query_choice, route, site
from billhook.sandbox.pages.texts import STATUSES, customer_names, subject_names
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import matching
from billhook.sandbox.storage.tables import contract as contract_table
from billhook.sandbox.storage.tables import credit_pool
from billhook.sandbox.storage.tables import invoice as invoice_table

_LATEST = 10
_LATEST_INVOICES = 12
INVOICE_PAGE_RULE = "/<invoice_id>/<proof>"


@route("/customers")
def customers() -> Response:
    """List the customers, newest first, with what they owe."""
    with site.reading() as tx:
        page = CUSTOMERS.newest(tx, PAGE_ROWS, page_cursor())
        views = customer_views(tx, page.items)
    return site.render("customers.html", page=page, customers=views)


@route("/customers/<customer_id>")
def customer(customer_id: str) -> Response:
    """Show one customer."""
    with site.reading() as tx:
        stored = CUSTOMERS.find(tx, customer_id)
        if stored is None:
            raise NotFound("There is no customer with this id.")
        return site.render("customer.html", **_details(tx, customer_views(tx, [stored])[0]))


def _details(tx: Transaction, found: Customer) -> dict[str, Any]:
    of_customer = select(credit_pool).where(credit_pool.c.customer_id == found.id)
    pools = tx.execute(of_customer.order_by(credit_pool.c.seq.desc()).limit(_LATEST)).all()
    owner = contract_table.c.customer_id == found.id, contract_table.c.deleted_at.is_(None)
    return {
        "customer": found,
        "document": indented_json(found.to_json().decode()),
        "contracts": CONTRACTS.newest(tx, _LATEST, None, *owner),
        "invoices": INVOICES.newest(tx, _LATEST, None, invoice_table.c.customer_id == found.id),
        "consumption": metered_items.customer_consumption(tx, found.id),
        "pools": pools,
        "product_names": subject_names(tx, [one.credit_product_id for one in pools]),
    }


@route("/contracts")
def contracts() -> Response:
    """List the contracts that are not deleted, newest first."""
    with site.reading() as tx:
        there = contract_table.c.deleted_at.is_(None)
        page = CONTRACTS.newest(tx, PAGE_ROWS, page_cursor(), there)
        names = customer_names(tx, [one.customer_id for one in page.items])
    return site.render("contracts.html", page=page, names=names)


@route("/contracts/<contract_id>")
def contract(contract_id: str) -> Response:
    """Show one contract, with its present cycle, its products and its invoices."""
    with site.reading() as tx:
        # Not by its external id, which may hold slashes; and a deleted one is shown, too.
        found = CONTRACTS.find(tx, contract_id)
        if found is None:
            raise NotFound("There is no contract with this id.")
        where = invoice_table.c.contract_id == found.id
        is_over = found.end_date is not None and found.end_date <= tx.now
        return site.render(
            "contract.html",
            contract=found,
            name=stored_contracts.display_name(found),
            names=customer_names(tx, [found.customer_id]),
            cycle=None if is_over or found.start_date > tx.now else cycles.cycle_at(found, tx.now),
            sold=stored_contracts.sold_products(tx, found),
            invoices=INVOICES.newest(tx, _LATEST_INVOICES, None, where),
            document=indented_json(found.to_json().decode()),
        )


@route("/invoices")
def invoices() -> Response:
    """List the invoices, newest first."""
    status, customer_id = query_choice("status", STATUSES), request.args.get("customer") or None
    where = matching((invoice_table.c.billing_status, status), (invoice_table.c.customer_id, customer_id))
    with site.reading() as tx:
        page = INVOICES.newest(tx, PAGE_ROWS, page_cursor(), *where)
        return site.render(
            "invoices.html",
            page=page,
            names=customer_names(tx, [one.customer_id for one in page.items]),
            customers=sorted(customer_names(tx).items(), key=lambda one: one[1].casefold()),
            chosen={"status": status, "customer": customer_id},
            statuses=list(STATUSES),
        )


@route("/invoices/<invoice_id>")
def invoice(invoice_id: str) -> Response:
    """Show one invoice with its lines."""
    with site.reading() as tx:
        found = INVOICES.find(tx, invoice_id)
        if found is None:
            raise NotFound("There is no invoice with this id.")
        return site.render(
            "invoice.html",
            invoice=found,
            names=subject_names(tx, [found.customer_id, found.contract_id]),
            printable=page_path(tx, found.id),
        )


def invoice_page(invoice_id: str, proof: str) -> Response:
    """Return the page of an invoice at its unguessable address; 404 for any other address."""
    with site.reading() as tx:
        if not is_valid_proof(tx, invoice_id, proof):
            raise NotFound("There is no such page.")
        invoice = INVOICES.get(tx, invoice_id)
        customer = CUSTOMERS.get(tx, str(invoice.customer_id))
    response = site.render("invoice_page.html", invoice=invoice, customer=customer)
    # The link alone gives access, so it must not reach other sites.
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
