"""What happens: the first page, with the clock and what it will do next; the timeline; raising events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import Any

from flask import Response, url_for
from sqlalchemy import ColumnElement, func, select
from werkzeug.exceptions import NotFound

from billhook.events import EVENT_TYPES
from billhook.pages.charts import Bars, Lane, LaneChart, Mark, Series, bar_chart, lane_chart
from billhook.sandbox.billing import scheduled_jobs
from billhook.sandbox.billing.chart_series import days_up_to
from billhook.sandbox.pages.context import (
    PAGE_ROWS,
    RouteTable,
    page_context,
    page_cursor,
    page_links,
    query_choice,
    redirect_to,
    render,
)
from billhook.sandbox.pages.names import subject_names
from billhook.sandbox.pages.sentences import event_sentences
from billhook.sandbox.pages.texts import described_cause, first_sentence, indented_text, subject_of
from billhook.sandbox.scenario import seed_demo_data
from billhook.sandbox.storage.tables import billing, webhooks
from billhook.sandbox.storage.tables.webhooks import delivery, raised_event, subscription
from billhook.sandbox.storage.transaction import Transaction
from billhook.sandbox.webhooks import delivery_log
from billhook.sandbox.webhooks.delivery_log import DeliveryTrace, Happening

ROUTES = RouteTable()
_DAYS = 45
"""Of the chart: more than the demo's 40 days."""
_ROWS = 8
"""On the overview: of what happens next, and of the latest events."""


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
        told = _timeline_texts(tx, page.items)
    return render(
        "timeline.html",
        page=page,
        told=told,
        pager=page_links(page.next_cursor),
        types=sorted(EVENT_TYPES),
        states=delivery_log.STATES,
        chosen={"type": event_type, "state": state},
    )


def _timeline_texts(tx: Transaction, happenings: Sequence[Happening]) -> dict[str, Any]:
    """Return what the list of happenings shows beside their rows: sentences, causes, and names for ids."""
    causes = {one.cause: described_cause(one.cause) for one in happenings}
    return {
        "sentences": event_sentences(tx, [event for one in happenings for event in one.events]),
        "causes": causes,
        "names": subject_names(tx, [cause.detail for cause in causes.values()]),
        "dashboard": tx.options.dashboard_url,
    }


@ROUTES.get("/timeline/<event_id>")
def event(event_id: str) -> Response:
    """Show one event with its body, its deliveries and all attempts."""
    with page_context().runner.reading() as tx:
        found = delivery_log.event_trace(tx, event_id)
        if found is None:
            raise NotFound("There is no event with this id; the sandbox keeps the newest 100,000.")
        trace, body = found
        told = _timeline_texts(tx, [Happening(trace.cause, trace.raised_at, [trace])])
    return render(
        "event.html",
        event=trace,
        body=indented_text(body),
        told=told,
        charts_of={one.delivery.id: _attempts_chart(one) for one in trace.deliveries if one.attempts},
    )


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
    """Show the types of events, each with a link to the form that raises one."""
    with page_context().runner.reading() as tx:
        of = subscription.c
        query = select(of.event_type, func.count()).group_by(of.event_type)
        subscribed = {row[0]: row[1] for row in tx.connection.execute(query)}
    types = {name: first_sentence(EVENT_TYPES[name].__doc__ or "") for name in sorted(EVENT_TYPES)}
    return render("trigger.html", types=types, subscribed=subscribed)


@ROUTES.get("/")
def overview() -> Response:
    """Show the clock, the next jobs, counts, and the latest events."""
    with page_context().runner.reading() as tx:
        jobs, latest = scheduled_jobs.upcoming(tx, _ROWS), delivery_log.timeline(tx, _ROWS, None).items
        subjects = {job.subject_id: subject_of(job.subject_id) for job in jobs}
        return render(
            "overview.html",
            jobs=jobs,
            subjects=subjects,
            names=subject_names(tx, subjects.values()),
            counts=_counts(tx),
            states=delivery_log.count_states(tx),
            chart=_events_chart(tx),
            latest=latest,
            told=_timeline_texts(tx, latest),
        )


@ROUTES.post("/demo")
def fill_with_demo() -> Response:
    """Create the demo's customers, contracts and meters, and send its usage."""
    runner = page_context().runner
    created = seed_demo_data(runner.send, runner.service.clock.now())
    done = "The demo's data is there: move the clock to see its invoices."
    return redirect_to(url_for(".overview"), done if created else "The demo's data was there already.")


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
