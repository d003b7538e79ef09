"""Credits: pools with the course of their balances, the ledger, and granting credits."""

from __future__ import annotations

from flask import Response, request

from billhook.sandbox.billing.credits import credit_history
from billhook.sandbox.pages.amounts import parse_number
from billhook.sandbox.pages.charting import balance_chart
from billhook.sandbox.pages.context import PAGE_ROWS, act, context, cursor, go, pager, show
from billhook.sandbox.pages.names import credit_product_names, customer_names
from billhook.sandbox.pages.routes import RouteTable

__all__ = ["ROUTES"]

ROUTES = RouteTable()
_POOLS = 50
_COURSE = 40
"""Entries of the ledger in a pool's chart."""


@ROUTES.get("/credits")
def credit() -> Response:
    """Show the credit pools, and the newest ledger entries."""
    customer_id = request.args.get("customer") or None
    with context().runner.reading() as tx:
        pools = credit_history.pools(tx, _POOLS, None, customer_id)
        entries = credit_history.newest_entries(tx, PAGE_ROWS, cursor(), customer_id)
        rows = [*pools.items, *entries.items]
        return show(
            "credits.html",
            pools=pools,
            courses={
                one.id: balance_chart(credit_history.balance_history(tx, one, _COURSE)) for one in pools.items
            },
            expiries=credit_history.next_expiries(tx, [one.id for one in pools.items]),
            entries=entries,
            pager=pager(entries.next_cursor),
            names=customer_names(tx, [one.customer_id for one in rows]),
            product_names=credit_product_names(tx, [one.credit_product_id for one in rows]),
            customers=sorted(customer_names(tx).items(), key=lambda one: one[1].casefold()),
            chosen={"customer": customer_id},
        )


@ROUTES.post("/credits")
def grant() -> Response:
    """Grant credits to a customer, from the oldest credit product."""
    customer_id, amount = request.form.get("customer", ""), request.form.get("amount", "").strip()
    number = parse_number(amount)
    if number is None:
        return go("credit", "Refused: the number of credits is not a number", good=False)
    body = {"customerId": customer_id, "creditAmount": number}
    return act(("credit", {}), "The credits are granted.", "POST /_sandbox/credits/grant", body)
