"""What happens: the first page, with the clock and what it will do next; the timeline; raising events."""

from __future__ import annotations

from datetime import UTC, timedelta

from flask import Response, request
from sqlalchemy import ColumnElement, func, select
from werkzeug.exceptions import NotFound

from billhook.errors import SandboxError
from billhook.events import EVENT_TYPES, sample
from billhook.fields import strict_json
from billhook.fields.strict_json import datetime_text
from billhook.pages.charts import Bars, Lane, LaneChart, Mark, Series, bar_chart, lane_chart
from billhook.sandbox.billing import scheduled_jobs
from billhook.sandbox.billing.chart_series import days_up_to
from billhook.sandbox.pages.context import (
    PAGE_ROWS,
    RouteTable,
    error_sentence,
    page_context,
    page_cursor,
    page_links,
    query_choice,
    redirect_with_notice,
    render,
    run_operation,
)
from billhook.sandbox.pages.texts import described_cause, indented, indented_text
from billhook.sandbox.storage.tables import billing, webhooks
from billhook.sandbox.storage.tables.webhooks import delivery, raised_event, subscription
from billhook.sandbox.storage.transaction import Transaction
from billhook.sandbox.webhooks import delivery_log
from billhook.sandbox.webhooks.delivery_log import DeliveryTrace

ROUTES = RouteTable()
_WAIT_SECONDS = 5
_KEY = "POST /_sandbox/trigger/{eventType}"
_DAYS = 45
"""Of the chart: more than the demo's 40 days."""
_JOBS = 8
_LATEST = 8


@ROUTES.get("/timeline")
def events() -> Response:
    """Show the events, newest first, under what raised them."""
    event_type, state = query_choice("type", EVENT_TYPES), query_choice("state", delivery_log.STATES)
    where: list[ColumnElement[bool]] = []
    if event_type is not None:
        where.append(raised_event.c.event_type == event_type)
    if state is not None:
        found = select(delivery.c.raised_id).where(delivery.c.state == state)
        where.append(raised_event.c.id.in_(found))
    with page_context().runner.reading() as tx:
        page = delivery_log.timeline(tx, PAGE_ROWS, page_cursor(), *where)
    return render(
        "timeline.html",
        page=page,
        pager=page_links(page.next_cursor),
        types=sorted(EVENT_TYPES),
        states=delivery_log.STATES,
        chosen={"type": event_type, "state": state},
        described=described_cause,
    )


@ROUTES.get("/timeline/<event_id>")
def event(event_id: str) -> Response:
    """Show one event with its body, its deliveries and all attempts."""
    with page_context().runner.reading() as tx:
        found = delivery_log.event_trace(tx, event_id)
    if found is None:
        raise NotFound("There is no event with this id; the sandbox keeps the newest 100,000.")
    trace, body = found
    return render(
        "event.html",
        event=trace,
        body=indented_text(body),
        cause=described_cause(trace.cause),
        charts_of={one.delivery.id: _attempts_chart(one) for one in trace.deliveries if one.attempts},
    )


@ROUTES.post("/timeline/<event_id>/deliveries/<delivery_id>/resend")
def resend(event_id: str, delivery_id: str) -> Response:
    """Send a delivery again."""
    done = run_operation(
        ("event", {"event_id": event_id}), "The delivery is sent again, under the same id.",
        "POST /_sandbox/deliveries/{deliveryId}/resend", deliveryId=delivery_id,
    )  # fmt: skip
    page_context().runner.deliver()
    return done


@ROUTES.post("/timeline/<event_id>/wait")
def wait(event_id: str) -> Response:
    """Wait for the deliveries that are due, for some seconds at most."""
    page_context().runner.deliver(_WAIT_SECONDS)
    return redirect_with_notice("event", "Attempts that were due have been made.", event_id=event_id)


def _attempts_chart(trace: DeliveryTrace) -> LaneChart:
    start = min(one.started_at for one in trace.attempts)
    marks = [
        Mark(
            one.started_at,
            "good" if one.error is None else "bad",
            f"attempt {one.number}: {one.status or one.error or 'no answer'}",
        )
        for one in trace.attempts
    ]
    if trace.delivery.due_at is not None:
        planned = max(trace.delivery.due_at, start + timedelta(seconds=1))
        marks.append(Mark(planned, "warn", "next attempt", open=True))
    return lane_chart(start, [Lane("attempts", tuple(marks))])


@ROUTES.get("/trigger")
def trigger() -> Response:
    """Show the types of events, and the sample of one of them in a form."""
    event_type = query_choice("type", EVENT_TYPES)
    return _form(event_type, None if event_type is None else _sample(event_type))


@ROUTES.post("/trigger")
def raise_event() -> Response:
    """Raise an event of the form's type with the form's body."""
    event_type, text = request.form.get("type", ""), request.form.get("body", "").strip()
    if event_type not in EVENT_TYPES:
        return redirect_with_notice("trigger", "Refused: there is no such event type", good=False)
    try:
        raised = page_context().runner.run(_KEY, (text or "{}").encode(), eventType=event_type)
    except SandboxError as error:
        # Not a redirect: what was typed is shown again.
        return _form(event_type, text, error_sentence(error), error.status)
    page_context().runner.deliver()
    message = f"{event_type} is raised, and sent to everyone who subscribed to it."
    return redirect_with_notice("event", message, event_id=raised.raised_id)


def _form(
    event_type: str | None, body: str | None, problem: str | None = None, status: int = 200
) -> Response:
    with page_context().runner.reading() as tx:
        of = subscription.c
        query = select(of.event_type, func.count()).group_by(of.event_type)
        subscribed = {row[0]: row[1] for row in tx.connection.execute(query)}
    return render(
        "trigger.html",
        status,
        types={name: _meaning(name) for name in sorted(EVENT_TYPES)},
        subscribed=subscribed,
        chosen=event_type,
        body=body,
        problem=problem,
    )


def _meaning(event_type: str) -> str:
    """Return the first sentence of the type's description."""
    return " ".join((EVENT_TYPES[event_type].__doc__ or "").split()).partition(" Source:")[0]


def _sample(event_type: str) -> str:
    """Return the sample without its date: the event is dated by the sandbox's clock."""
    fields = strict_json.loads(sample(EVENT_TYPES[event_type]).to_json())
    if isinstance(fields, dict):
        fields.pop("date", None)
    return indented(fields)


@ROUTES.get("/")
def overview() -> Response:
    """Show the clock, the next jobs, counts, and the latest events."""
    with page_context().runner.reading() as tx:
        return render(
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
        moved = page_context().runner.run("POST /_sandbox/clock", {"advance": period})
    except SandboxError as error:
        return redirect_with_notice("overview", error_sentence(error), good=False)
    steps = "1 job was run" if moved.steps == 1 else f"{moved.steps} jobs were run"
    return redirect_with_notice("overview", f"The clock is at {datetime_text(moved.now)}; {steps}.")


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
