"""The first page: the clock, what it will do next, and what there is."""

from __future__ import annotations

from datetime import UTC, timedelta

from flask import Response, request
from sqlalchemy import func, select

from billhook.errors import SandboxError
from billhook.pages import Bars, Series, bar_chart
from billhook.sandbox.billing import scheduled_jobs
from billhook.sandbox.billing.chart_series import days_up_to
from billhook.sandbox.pages.context import RouteTable, context, go, refusal, show
from billhook.sandbox.pages.texts import described_cause
from billhook.sandbox.storage.tables import billing, webhooks
from billhook.sandbox.storage.transaction import Transaction
from billhook.sandbox.webhooks import delivery_log
from billhook.wire.strict_json import datetime_text

__all__ = ["ROUTES"]

ROUTES = RouteTable()
_DAYS = 45
"""Of the chart: more than the demo's 40 days."""
_JOBS = 8
_LATEST = 8


@ROUTES.get("/")
def overview() -> Response:
    """Show the clock, the next jobs, counts, and the latest events."""
    with context().runner.reading() as tx:
        return show(
            "overview.html",
            jobs=scheduled_jobs.upcoming(tx, _JOBS),
            counts=_counts(tx),
            states=delivery_log.count_states(tx),
            chart=_events_chart(tx),
            latest=delivery_log.timeline(tx, _LATEST, None).items,
            described=described_cause,
        )


@ROUTES.post("/clock")
def move_clock() -> Response:
    """Move the clock ahead by the duration of the form."""
    period = request.form.get("advance", "").strip()
    try:
        moved = context().runner.run("POST /_sandbox/clock", {"advance": period})
    except SandboxError as error:
        return go("overview", refusal(error), good=False)
    steps = "1 job was run" if moved.steps == 1 else f"{moved.steps} jobs were run"
    return go("overview", f"The clock is at {datetime_text(moved.now)}; {steps}.")


def _counts(tx: Transaction) -> dict[str, int]:
    of = {
        "customers": select(func.count()).select_from(billing.customer),
        "contracts": select(func.count()).where(billing.contract.c.deleted_at.is_(None)),
        "invoices": select(func.count()).select_from(billing.invoice),
        "subscriptions": select(func.count()).select_from(webhooks.subscription),
        "faults": select(func.count()).select_from(webhooks.fault),
    }
    return {name: tx.connection.execute(query).scalar_one() for name, query in of.items()}


def _events_chart(tx: Transaction) -> Bars:
    days = days_up_to(tx.now.astimezone(UTC).date(), _DAYS)
    since = tx.now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=_DAYS - 1)
    counted = delivery_log.events_by_day(tx, since)
    rows = [(day.isoformat(), (counted.get(day, 0),)) for day in days]
    return bar_chart("Events raised a day", [Series("events", "accent")], rows, height=72)
