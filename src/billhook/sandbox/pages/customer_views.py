"""Customers, and one customer with contracts, invoices, usage and credits."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from flask import Response
from werkzeug.exceptions import NotFound

from billhook.resources import Customer
from billhook.sandbox.billing import metered_items
from billhook.sandbox.billing.contracts.contracts import CONTRACTS
from billhook.sandbox.billing.credits import credit_history
from billhook.sandbox.billing.customers import CUSTOMERS, customer_views
from billhook.sandbox.billing.invoices.invoices import INVOICES
from billhook.sandbox.billing.usage.meters import METERS
from billhook.sandbox.billing.usage.usage_series import days_up_to, usage_by_day
from billhook.sandbox.pages.charting import invoiced_chart, usage_charts
from billhook.sandbox.pages.context import PAGE_ROWS, context, cursor, pager, show
from billhook.sandbox.pages.json_text import indented
from billhook.sandbox.pages.names import credit_product_names
from billhook.sandbox.pages.routes import RouteTable
from billhook.sandbox.storage.repository import to_document
from billhook.sandbox.storage.tables.billing import contract, invoice
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["ROUTES"]

ROUTES = RouteTable()
_DAYS = 45
_MONTHS = 12
_LATEST = 10


@ROUTES.get("/customers")
def customers() -> Response:
    """List the customers, newest first, with what they owe."""
    with context().runner.reading() as tx:
        page = CUSTOMERS.page(tx, PAGE_ROWS, cursor(), newest_first=True)
        views = customer_views(tx, page.items)
    return show("customers.html", page=page, customers=views, pager=pager(page.next_cursor))


@ROUTES.get("/customers/<customer_id>")
def customer(customer_id: str) -> Response:
    """Show one customer."""
    with context().runner.reading() as tx:
        stored = CUSTOMERS.find(tx, customer_id)
        if stored is None:
            raise NotFound("There is no customer with this id.")
        return show("customer.html", **_details(tx, customer_views(tx, [stored])[0]))


def _details(tx: Transaction, found: Customer) -> dict[str, Any]:
    days = days_up_to(tx.now.astimezone(UTC).date(), _DAYS)
    series = usage_by_day(tx, METERS.page(tx, PAGE_ROWS, None).items, days, found.id)
    pools = credit_history.pools(tx, _LATEST, None, found.id).items
    owner = contract.c.customer_id == found.id, contract.c.deleted_at.is_(None)
    return {
        "customer": found,
        "document": indented(to_document(found)),
        "contracts": CONTRACTS.page(tx, _LATEST, None, *owner, newest_first=True),
        "invoices": INVOICES.page(tx, _LATEST, None, invoice.c.customer_id == found.id, newest_first=True),
        "months": invoiced_chart(tx, _MONTHS, found.id),
        "usage": usage_charts([one for one in series if any(one.values)], days),
        "consumption": metered_items.customer_consumption(tx, found.id),
        "pools": pools,
        "product_names": credit_product_names(tx, [one.credit_product_id for one in pools]),
    }
