"""Usage: each meter by day, and the events that arrived."""

from __future__ import annotations

from datetime import UTC

from flask import Response, request
from sqlalchemy import select

from billhook.resources import UsageEvent
from billhook.sandbox.billing.usage.meters import METERS
from billhook.sandbox.billing.usage.usage_series import days_up_to, usage_by_day
from billhook.sandbox.pages.charting import usage_charts
from billhook.sandbox.pages.context import PAGE_ROWS, choice, context, cursor, pager, show
from billhook.sandbox.pages.names import customer_names
from billhook.sandbox.pages.routes import RouteTable
from billhook.sandbox.storage.paging import fetch_page
from billhook.sandbox.storage.tables.usage import event
from billhook.wire import strict_json

__all__ = ["ROUTES"]

ROUTES = RouteTable()
_METERS = 12
"""Charts on the page."""
_PERIODS = ("14", "45", "90", "365")


@ROUTES.get("/usage")
def usage() -> Response:
    """Show each meter's usage by day, of one customer or of all, and the newest usage events."""
    days_text = choice("days", _PERIODS) or "45"
    customer_id = request.args.get("customer") or None
    with context().runner.reading() as tx:
        days = days_up_to(tx.now.astimezone(UTC).date(), int(days_text))
        meters = METERS.page(tx, _METERS, None)
        series = usage_by_day(tx, meters.items, days, customer_id)
        where = [] if customer_id is None else [event.c.customer_id == customer_id]
        page = fetch_page(
            tx.connection, select(event).where(*where), [event.c.seq], PAGE_ROWS, cursor(), event.name,
            newest_first=True,
        )  # fmt: skip
        names = customer_names(tx)
        shown = customer_names(tx, [row.customer_id for row in page.items])
    return show(
        "usage.html",
        charts_of=usage_charts(series, days),
        meters=meters,
        page=page,
        data={row.seq: _data(row.body) for row in page.items},
        pager=pager(page.next_cursor),
        customers=sorted(names.items(), key=lambda one: one[1].casefold()),
        names=shown,
        chosen={"customer": customer_id, "days": days_text},
        periods=_PERIODS,
    )


def _data(body: str) -> str:
    found = UsageEvent.from_json(body.encode()).data
    return "" if not found else strict_json.dumps(found).decode()
