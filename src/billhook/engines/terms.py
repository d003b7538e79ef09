"""What a subscriber asks of the inbox for one event, beside being called."""

from __future__ import annotations

from collections.abc import Collection

from billhook.dispatch import Subscriber, Subscribers
from billhook.events import EVENT_TYPES, Event, UnknownEvent, parse_event
from billhook.inbox import Likeness, Stored, Terms
from billhook.inbox.replay import Newcomer

__all__ = ["newcomer", "terms_of"]


def terms_of(subscriber: Subscriber, stored: Stored, event: Event | UnknownEvent) -> Terms:
    """The order its run takes a turn in, and by what a later delivery would be known as a twin of this."""
    digest = subscriber.digest(stored.source, event)
    likeness = None
    if digest is not None:
        window_seconds = subscriber.identity_window_seconds
        likeness = Likeness(digest, subscriber.identity, stored.received_at, window_seconds)
    return Terms(subscriber.order_key(stored.source, event), likeness)


def newcomer(subscribers: Subscribers, handler: str) -> Newcomer | None:
    """For billhook.inbox.replay: gives deliveries of its event types their first run of `handler`.

    Not those of sources that it does not handle, those that were handled under one of its former names, nor
    those that cannot be read any more.
    None if nobody has the name.
    """
    every = (*EVENT_TYPES, UnknownEvent.signal_name)
    if not any(handler in subscribers.of(event_type) for event_type in every):
        return None

    def terms(stored: Stored, handlers: Collection[str]) -> Terms | None:
        subscriber = subscribers.of(stored.event_type).get(handler)
        if subscriber is None or not subscriber.handles(stored.source):
            return None
        if not set(subscriber.aliases).isdisjoint(handlers):
            return None
        try:
            named = stored.sent_as is not None
            return terms_of(subscriber, stored, parse_event(stored.event_type, stored.body, as_named=named))
        except Exception:  # noqa: BLE001 - whatever a user's model raises, the others are replayed
            return None

    return terms
