"""Handlers for every event, and for those of a type that this version of billhook does not know."""

from __future__ import annotations

import logging

from billhook import Delivery, Handlers
from billhook.events import Event, UnknownEvent
from billing.database import transaction

handlers = Handlers()
logger = logging.getLogger(__name__)


@handlers.on_any()
def keep_journal(event: Event | UnknownEvent, delivery: Delivery) -> None:
    """Write a line for each delivery."""
    with transaction() as connection:
        if delivery.once(connection):
            connection.execute("INSERT INTO journal (key, type) VALUES (?, ?)", (delivery.key, event.type))


@handlers.on_unknown()
def report_unknown(event: UnknownEvent) -> None:
    """A new type is no error: it is stored, and here is what it brought."""
    logger.warning("the billing service now sends %s, with %s", event.type, ", ".join(event.data))
    with transaction() as connection:
        connection.execute("INSERT INTO notice (text) VALUES (?)", (f"unknown type {event.type}",))
