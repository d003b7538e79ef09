"""Customers, their contracts and their usage: each meter by day, and the events that arrived."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from typing import Any

from flask import Response, request
from sqlalchemy import select
from werkzeug.exceptions import NotFound

from billhook.fields import strict_json
from billhook.resources import Customer, PageQuery, UsageEvent
from billhook.sandbox.billing import chart_series, metered_items
from billhook.sandbox.billing.chart_series import days_up_to, usage_by_day
from billhook.sandbox.billing.contracts import contracts as stored_contracts
from billhook.sandbox.billing.contracts import cycles
from billhook.sandbox.billing.contracts.contracts import CONTRACTS
from billhook.sandbox.billing.contracts.cycles import ContractRecord
from billhook.sandbox.billing.customers import CUSTOMERS, customer_views
from billhook.sandbox.billing.invoices.invoices import INVOICES
from billhook.sandbox.billing.usage.meters import METERS
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
from billhook.sandbox.pages.texts import indented, invoiced_chart, usage_charts
from billhook.sandbox.storage.repository import fetch_page, to_document
from billhook.sandbox.storage.tables.billing import contract as contract_table
from billhook.sandbox.storage.tables.billing import invoice
from billhook.sandbox.storage.tables.usage import event
from billhook.sandbox.storage.transaction import Transaction

ROUTES = RouteTable()
_DAYS = 45
_MONTHS = 12
_LATEST = 10
_LATEST_INVOICES = 12
_METERS = 12
"""Charts on the page."""
_PERIODS = ("14", "45", "90", "365")


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
    pools = chart_series.pool_page(tx, _LATEST, None, found.id).items
    owner = contract_table.c.customer_id == found.id, contract_table.c.deleted_at.is_(None)
    return {
        "customer": found,
        "document": indented(to_document(found)),
        "contracts": CONTRACTS.newest(tx, _LATEST, None, *owner),
        "invoices": INVOICES.newest(tx, _LATEST, None, invoice.c.customer_id == found.id),
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
        where = invoice.c.contract_id == found.id
        return render(
            "contract.html",
            contract=found,
            name=stored_contracts.display_name(found),
            names=customer_names(tx, [found.customer_id]),
            cycle=_present_cycle(tx, found),
            sold=stored_contracts.sold_products(tx, found),
            invoices=INVOICES.newest(tx, _LATEST_INVOICES, None, where),
            document=indented(to_document(found)),
        )


def _present_cycle(tx: Transaction, found: ContractRecord) -> tuple[object, object] | None:
    over = found.end_date is not None and found.end_date <= tx.now
    return None if over or found.start_date > tx.now else cycles.cycle_at(found, tx.now)


@ROUTES.get("/usage")
def usage() -> Response:
    """Show each meter's usage by day, of one customer or of all, and the newest usage events."""
    days_text = query_choice("days", _PERIODS) or "45"
    customer_id = request.args.get("customer") or None
    with page_context().runner.reading() as tx:
        days = days_up_to(tx.now.astimezone(UTC).date(), int(days_text))
        meters = METERS.page(tx, PageQuery(limit=Decimal(_METERS)))
        series = usage_by_day(tx, meters.items, days, customer_id)
        where = [] if customer_id is None else [event.c.customer_id == customer_id]
        query = select(event).where(*where)
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
