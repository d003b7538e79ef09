"""Customers, contracts and their usage; invoices, each with a printable page; and credits.

The printable page is at the address that webhooks give as the invoice's PDF: a browser prints it to PDF, in
any script and currency, and a PDF library would need a font for each. It needs no session, since people
open it from a link; the address cannot be guessed. Source: spec, "Events", invoicePdfUrl.
"""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from typing import Any

from flask import Response, request
from sqlalchemy import select
from werkzeug.exceptions import NotFound

from billhook.fields import strict_json
from billhook.resources import Customer, PageQuery, UsageEvent
from billhook.sandbox.billing import chart_series, cycles, metered_items
from billhook.sandbox.billing import contracts as stored_contracts
from billhook.sandbox.billing.chart_series import days_up_to, usage_by_day
from billhook.sandbox.billing.contracts import CONTRACTS
from billhook.sandbox.billing.customers import CUSTOMERS, customer_views
from billhook.sandbox.billing.invoices import INVOICES, is_valid_proof, page_path
from billhook.sandbox.billing.meters import METERS
from billhook.sandbox.pages.context import (
    PAGE_ROWS,
    ROUTES,
    page_context,
    page_cursor,
    page_links,
    query_choice,
    render,
)
from billhook.sandbox.pages.texts import (
    STATUS_TONES,
    balance_chart,
    customer_names,
    indented,
    invoiced_chart,
    subject_names,
    usage_charts,
)
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import fetch_page, matching, to_document
from billhook.sandbox.storage.tables import contract as contract_table
from billhook.sandbox.storage.tables import event
from billhook.sandbox.storage.tables import invoice as invoice_table

_DAYS = 45
_MONTHS = 12
_LATEST = 10
_LATEST_INVOICES = 12
_METERS = 12
"""Charts on the page."""
_PERIODS = ("14", "45", "90", "365")
INVOICE_PAGE_RULE = "/<invoice_id>/<proof>"
_POOLS = 50
_COURSE = 40
"""Entries of the ledger in a pool's chart."""


@ROUTES.get("/customers")
def customers() -> Response:
    """List the customers, newest first, with what they owe."""
    with page_context().runner.reading() as tx:
        page = CUSTOMERS.newest(tx, PAGE_ROWS, page_cursor())
        views = customer_views(tx, page.items)
    return render("customers.html", page=page, customers=views, pager=page_links(page.next_cursor))


@ROUTES.get("/customers/<customer_id>")
def customer(customer_id: str) -> Response:
    """Show one customer."""
    with page_context().runner.reading() as tx:
        stored = CUSTOMERS.find(tx, customer_id)
        if stored is None:
            raise NotFound("There is no customer with this id.")
        return render("customer.html", **_details(tx, customer_views(tx, [stored])[0]))


def _details(tx: Transaction, found: Customer) -> dict[str, Any]:
    days = days_up_to(tx.now.astimezone(UTC).date(), _DAYS)
    series = usage_by_day(tx, METERS.page(tx, PageQuery(limit=Decimal(PAGE_ROWS))).items, days, found.id)
    pools = chart_series.pool_page(tx, _LATEST, found.id).items
    owner = contract_table.c.customer_id == found.id, contract_table.c.deleted_at.is_(None)
    return {
        "customer": found,
        "document": indented(to_document(found)),
        "contracts": CONTRACTS.newest(tx, _LATEST, None, *owner),
        "invoices": INVOICES.newest(tx, _LATEST, None, invoice_table.c.customer_id == found.id),
        "months": invoiced_chart(tx, _MONTHS, found.id),
        "usage": usage_charts([one for one in series if any(one.values)], days),
        "consumption": metered_items.customer_consumption(tx, found.id),
        "pools": pools,
        "product_names": subject_names(tx, [one.credit_product_id for one in pools]),
    }


@ROUTES.get("/contracts")
def contracts() -> Response:
    """List the contracts that are not deleted, newest first."""
    with page_context().runner.reading() as tx:
        there = contract_table.c.deleted_at.is_(None)
        page = CONTRACTS.newest(tx, PAGE_ROWS, page_cursor(), there)
        names = customer_names(tx, [one.customer_id for one in page.items])
    return render("contracts.html", page=page, names=names, pager=page_links(page.next_cursor))


@ROUTES.get("/contracts/<contract_id>")
def contract(contract_id: str) -> Response:
    """Show one contract, with its present cycle, its products and its invoices."""
    with page_context().runner.reading() as tx:
        # Not by its external id, which may hold slashes; and a deleted one is shown, too.
        found = CONTRACTS.find(tx, contract_id)
        if found is None:
            raise NotFound("There is no contract with this id.")
        where = invoice_table.c.contract_id == found.id
        is_over = found.end_date is not None and found.end_date <= tx.now
        return render(
            "contract.html",
            contract=found,
            name=stored_contracts.display_name(found),
            names=customer_names(tx, [found.customer_id]),
            cycle=None if is_over or found.start_date > tx.now else cycles.cycle_at(found, tx.now),
            sold=stored_contracts.sold_products(tx, found),
            invoices=INVOICES.newest(tx, _LATEST_INVOICES, None, where),
            document=indented(to_document(found)),
        )


@ROUTES.get("/usage")
def usage() -> Response:
    """Show each meter's usage by day, of one customer or of all, and the newest usage events."""
    days_text = query_choice("days", _PERIODS) or "45"
    customer_id = request.args.get("customer") or None
    with page_context().runner.reading() as tx:
        days = days_up_to(tx.now.astimezone(UTC).date(), int(days_text))
        meters = METERS.page(tx, PageQuery(limit=Decimal(_METERS)))
        series = usage_by_day(tx, meters.items, days, customer_id)
        query = select(event).where(*matching((event.c.customer_id, customer_id)))
        page = fetch_page(tx, query, PAGE_ROWS, page_cursor(), event.c.seq, newest_first=True)
        names = customer_names(tx)
        shown = customer_names(tx, [row.customer_id for row in page.items])
    return render(
        "usage.html",
        charts_of=usage_charts(series, days),
        meters=meters,
        page=page,
        data={row.seq: _data(row.body) for row in page.items},
        pager=page_links(page.next_cursor),
        customers=sorted(names.items(), key=lambda one: one[1].casefold()),
        names=shown,
        chosen={"customer": customer_id, "days": days_text},
        periods=_PERIODS,
    )


def _data(body: str) -> str:
    found = UsageEvent.from_json(body.encode()).data
    return "" if not found else strict_json.dumps(found).decode()


@ROUTES.get("/invoices")
def invoices() -> Response:
    """Show what was invoiced by month, and the invoices, newest first."""
    status, customer_id = query_choice("status", STATUS_TONES), request.args.get("customer") or None
    where = matching((invoice_table.c.billing_status, status), (invoice_table.c.customer_id, customer_id))
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
        pools = chart_series.pool_page(tx, _POOLS, customer_id)
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
