"""Give old deliveries a first run of a new handler: see billhook.inbox.operating.operations.replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from billhook.engines.dispatcher import parse, run_options
from billhook.errors import PayloadError
from billhook.events import EVENT_TYPES, UnknownEvent
from billhook.events.own_models import guarded
from billhook.handlers import ConnectedHandlers
from billhook.inbox import RunOptions, StoredDelivery


@dataclass(eq=False, repr=False)
class FirstRuns:
    """The options of the first run of a handler for a delivery, and why some get none.

    No run is made for deliveries of sources that the handler does not handle, nor for those that it has
    handled under one of its aliases. Deliveries that cannot be read, or whose model raises, get none either:
    `passed_over` counts them by the text of the error.
    """

    handlers: ConnectedHandlers
    name: str
    passed_over: Counter[str] = field(default_factory=Counter)

    def __call__(self, stored: StoredDelivery, handled_by: Collection[str]) -> RunOptions | None:
        """Return the options; None for no run. User code runs here, so call it outside any transaction."""
        if stored.type_field is not None and not stored.event_type:
            return None  # its type is in the body, and was never read: a replay of the delivery reads it
        handler = self.handlers.by_name(stored.event_type).get(self.name)
        if handler is None or not handler.handles(stored.source):
            return None
        if not set(handler.aliases).isdisjoint(handled_by):
            return None
        try:
            with guarded(stored.event_type):
                return run_options(handler, stored, parse(stored))
        except PayloadError as error:
            self.passed_over[str(error)] += 1
            return None


def backfill(handlers: ConnectedHandlers, name: str) -> FirstRuns | None:
    """Return what gives old deliveries a first run of a new handler; None if no handler has the name."""
    # For any type: one replay may select deliveries of all of them.
    every = (*EVENT_TYPES, UnknownEvent.signal_name)
    if not any(name in handlers.by_name(event_type) for event_type in every):
        return None
    return FirstRuns(handlers, name)
