"""The timeline: what happened, the events that it raised, their deliveries and attempts."""

from __future__ import annotations

from datetime import timedelta

from flask import Response
from sqlalchemy import ColumnElement, select
from werkzeug.exceptions import NotFound

from billhook.events import EVENT_TYPES
from billhook.pages import Lane, LaneChart, Mark, lane_chart
from billhook.sandbox.pages.causes import described_cause
from billhook.sandbox.pages.context import PAGE_ROWS, act, choice, context, cursor, go, pager, show
from billhook.sandbox.pages.json_text import indented_text
from billhook.sandbox.pages.routes import RouteTable
from billhook.sandbox.storage.tables.webhooks import delivery, raised_event
from billhook.sandbox.webhooks import delivery_log, timeline
from billhook.sandbox.webhooks.timeline import DeliveryTrace

__all__ = ["ROUTES"]

ROUTES = RouteTable()
_WAIT_SECONDS = 5


@ROUTES.get("/timeline")
def events() -> Response:
    """Show the events, newest first, under what raised them."""
    event_type, state = choice("type", EVENT_TYPES), choice("state", delivery_log.STATES)
    where: list[ColumnElement[bool]] = []
    if event_type is not None:
        where.append(raised_event.c.event_type == event_type)
    if state is not None:
        found = select(delivery.c.raised_id).where(delivery.c.state == state)
        where.append(raised_event.c.id.in_(found))
    with context().runner.reading() as tx:
        page = timeline.timeline(tx, PAGE_ROWS, cursor(), *where)
    return show(
        "timeline.html",
        page=page,
        pager=pager(page.next_cursor),
        types=sorted(EVENT_TYPES),
        states=delivery_log.STATES,
        chosen={"type": event_type, "state": state},
        described=described_cause,
    )


@ROUTES.get("/timeline/<event_id>")
def event(event_id: str) -> Response:
    """Show one event with its body, its deliveries and all attempts."""
    with context().runner.reading() as tx:
        found = timeline.event_trace(tx, event_id)
    if found is None:
        raise NotFound("There is no event with this id; the sandbox keeps the newest 100,000.")
    trace, body = found
    return show(
        "event.html",
        event=trace,
        body=indented_text(body),
        cause=described_cause(trace.cause),
        charts_of={one.delivery.id: _attempts_chart(one) for one in trace.deliveries if one.attempts},
    )


@ROUTES.post("/timeline/<event_id>/deliveries/<delivery_id>/resend")
def resend(event_id: str, delivery_id: str) -> Response:
    """Send a delivery again."""
    done = act(
        ("event", {"event_id": event_id}), "The delivery is sent again, under the same id.",
        "POST /_sandbox/deliveries/{deliveryId}/resend", deliveryId=delivery_id,
    )  # fmt: skip
    context().runner.deliver()
    return done


@ROUTES.post("/timeline/<event_id>/wait")
def wait(event_id: str) -> Response:
    """Wait for the deliveries that are due, for some seconds at most."""
    context().runner.deliver(_WAIT_SECONDS)
    return go("event", "Attempts that were due have been made.", event_id=event_id)


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
