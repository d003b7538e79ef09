"""Have one handler called with an edited copy of a delivery, which is stored as a delivery of its own."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from datetime import datetime

from billhook.engines.dispatcher import parse, run_options
from billhook.errors import ConfigError
from billhook.events import Event
from billhook.events.own_models import guarded
from billhook.handlers import ConnectedHandlers, Handler
from billhook.inbox import DeliveryDetails, Inbox, RunPlan, StoredDelivery
from billhook.inbox.operating.operations import store_edited
from billhook.inbox.reading.deliveries import DeliverySummary


def resend(
    inbox: Inbox,
    handlers: ConnectedHandlers,
    original: DeliveryDetails,
    handler_name: str,
    body: bytes,
    now: datetime,
) -> int:
    """Store a delivery with this body for one handler; return its id. Call `inbox.waker.wake()` afterwards.

    Its key is new, so that it is no duplicate of anything, for `delivery.once` either; nor is it a content
    duplicate. Raises ConfigError for a handler that does not handle such deliveries, PayloadError for a body
    that cannot be read as the event type. Then nothing is stored.
    """
    summary = original.summary
    handler = find_handler(handlers, summary, handler_name)
    key = f"edited-{summary.id}-{secrets.token_hex(8)}"
    headers = json.dumps(original.headers)
    stored = StoredDelivery(
        0, summary.source, key, summary.event_type, body, headers, None, now, sent_as=summary.sent_as
    )
    with guarded(summary.event_type):
        event = parse(stored)
        options = replace(run_options(handler, stored, event), content_key=None)
        about = event.identifying_values() if isinstance(event, Event) else ()
    plan = RunPlan(0, (handler.name,), options={handler.name: options}, identifiers=about)
    return store_edited(inbox, stored, plan, summary.id)


def find_handler(handlers: ConnectedHandlers, summary: DeliverySummary, name: str) -> Handler:
    """Return the handler of this name. Raises ConfigError if it does not handle such deliveries."""
    named = handlers.by_name(summary.event_type)
    handler = named.get(name)
    if handler is None or not handler.handles(summary.source):
        known = ", ".join(each for each, one in named.items() if one.handles(summary.source)) or "none"
        none = "" if named else "; name your modules or files as arguments or in BILLHOOK_HANDLERS"
        raise ConfigError(
            f"no handler {name!r} handles {summary.type_text} from {summary.source}: it has {known}{none}"
        )
    return handler
