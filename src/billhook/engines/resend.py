"""Have one handler called with an edited copy of a delivery, which is stored as a delivery of its own."""

from __future__ import annotations

import json
import secrets
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import insert

from billhook.engines.dispatcher import run_options
from billhook.errors import ConfigError
from billhook.events import Event, parse_event
from billhook.handlers import ConnectedHandlers
from billhook.inbox import DeliveryDetails, DeliveryState, Inbox, RunOptions, RunPlan, StoredDelivery
from billhook.inbox.locks import lock_order
from billhook.inbox.planning import make_runs
from billhook.inbox.schema import IDENTIFIERS, delivery


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
    named = handlers.by_name(summary.event_type)
    handler = named.get(handler_name)
    if handler is None or not handler.handles(summary.source):
        known = ", ".join(name for name, each in named.items() if each.handles(summary.source)) or "none"
        raise ConfigError(
            f"no handler {handler_name!r} handles {summary.event_type} from {summary.source}: it has {known}"
        )
    event = parse_event(summary.event_type, body, as_named=summary.sent_as is not None)
    key = f"edited-{summary.id}-{secrets.token_hex(8)}"
    headers = json.dumps(original.headers)
    stored = StoredDelivery(0, summary.source, key, summary.event_type, body, headers, None, now)
    values: dict[str, Any] = {
        name: getattr(stored, name)
        for name in ("source", "key", "event_type", "body", "headers", "received_at")
    }
    values |= {"digest": sha256(body).digest(), "sent_as": summary.sent_as, "edited_from": summary.id}
    if isinstance(event, Event):
        names = (column.name for column in IDENTIFIERS)
        values |= dict(zip(names, event.identifying_values(), strict=False))
    options = RunOptions(run_options(handler, stored, event).order_key)
    with inbox.database.write() as connection:
        lock_order(connection)
        row = insert(delivery).values(**values, state=DeliveryState.PLANNED.value)
        delivery_id: int = connection.execute(row.returning(delivery.c.id)).scalar_one()
        make_runs(connection, [RunPlan(delivery_id, (handler.name,), options={handler.name: options})], now)
    return delivery_id
