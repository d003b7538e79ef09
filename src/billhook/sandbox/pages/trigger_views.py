"""Raising any type of event from its sample."""

from __future__ import annotations

from flask import Response, request
from sqlalchemy import func, select

from billhook.errors import SandboxError
from billhook.events import EVENT_TYPES, sample
from billhook.sandbox.pages.context import choice, context, go, refusal, show
from billhook.sandbox.pages.json_text import indented
from billhook.sandbox.pages.routes import RouteTable
from billhook.sandbox.storage.tables.webhooks import subscription
from billhook.wire import strict_json

__all__ = ["ROUTES"]

ROUTES = RouteTable()
_KEY = "POST /_sandbox/trigger/{eventType}"


@ROUTES.get("/trigger")
def trigger() -> Response:
    """Show the types of events, and the sample of one of them in a form."""
    event_type = choice("type", EVENT_TYPES)
    return _form(event_type, None if event_type is None else _sample(event_type))


@ROUTES.post("/trigger")
def raise_event() -> Response:
    """Raise an event of the form's type with the form's body."""
    event_type, text = request.form.get("type", ""), request.form.get("body", "").strip()
    if event_type not in EVENT_TYPES:
        return go("trigger", "Refused: there is no such event type", good=False)
    try:
        raised = context().runner.run(_KEY, (text or "{}").encode(), eventType=event_type)
    except SandboxError as error:
        # Not a redirect: what was typed is shown again.
        return _form(event_type, text, refusal(error), error.status)
    context().runner.deliver()
    message = f"{event_type} is raised, and sent to everyone who subscribed to it."
    return go("event", message, event_id=raised.raised_id)


def _form(
    event_type: str | None, body: str | None, problem: str | None = None, status: int = 200
) -> Response:
    with context().runner.reading() as tx:
        of = subscription.c
        query = select(of.event_type, func.count()).group_by(of.event_type)
        subscribed = {row[0]: row[1] for row in tx.connection.execute(query)}
    return show(
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
