"""The blinker signals: one per event type, and the lifecycle signals of deliveries and runs.

An event's signal is named for its class in snake_case (`signals.invoice_approved`) and declared by the
class itself, so this module lists none of them. A subscriber is called as
`subscriber(sender, *, event, delivery)`, where the sender is the Flask app.

Lifecycle signals are for observers (metrics, alerts), never for work: they are sent once and are not
retried. A subscriber that raises is logged and stops neither the others nor the delivery.
"""

from __future__ import annotations

import logging
from typing import Any

from blinker import Namespace, Signal

from billhook.logs import LimitedLog, fields

__all__ = [
    "delivery_accepted",
    "delivery_conflict",
    "delivery_duplicate",
    "delivery_quarantined",
    "delivery_rejected",
    "delivery_twin",
    "emit",
    "event_signal",
    "handler_dead",
    "handler_ended",
    "handler_paused",
    "handler_retrying",
    "handler_started",
    "handler_succeeded",
]

logger = logging.getLogger("billhook.signals")

_LOGGED = ("delivery_id", "source", "key", "event_type", "handler", "cause")
"""The arguments of signals that are also fields of log records."""

_lifecycle = Namespace()
_events = Namespace()

delivery_accepted = _lifecycle.signal("delivery_accepted", "Stored: source, key, event_type, delivery_id.")
delivery_duplicate = _lifecycle.signal("delivery_duplicate", "Had already: source, key, event_type.")
delivery_conflict = _lifecycle.signal(
    "delivery_conflict",
    "A stored key came under another type, or with other bytes, and is quarantined: source, key, event_type, "
    "stored_event_type, delivery_id, conflict_of.",
)
delivery_rejected = _lifecycle.signal("delivery_rejected", "Not taken: source, status, cause.")
delivery_quarantined = _lifecycle.signal(
    "delivery_quarantined",
    "Stored, and not handled before an operator decides: delivery_id, event_type, error.",
)
delivery_twin = _lifecycle.signal(
    "delivery_twin",
    "Stored; the handler was not called, because it has handled the same content before: delivery_id, "
    "event_type, handler, twin_of.",
)
handler_started = _lifecycle.signal(
    "handler_started", "About to be called, in the thread that calls it: delivery, handler."
)
handler_ended = _lifecycle.signal(
    "handler_ended", "Returned or raised, in the same thread: delivery, handler, error, duration."
)
handler_succeeded = _lifecycle.signal("handler_succeeded", "delivery, handler.")
handler_retrying = _lifecycle.signal("handler_retrying", "delivery, handler, error, due_at.")
handler_dead = _lifecycle.signal("handler_dead", "delivery, handler, error.")
handler_paused = _lifecycle.signal("handler_paused", "Paused for its failures: handler, why.")


def event_signal(name: str) -> Signal:
    """Return the signal of an event type by its snake_case name, created at first use."""
    return _events.signal(name)


def __getattr__(name: str) -> Signal:
    """Return `signals.invoice_approved`; AttributeError for a name that no event class declares."""
    try:
        return _events[name]
    except KeyError:
        raise AttributeError(f"there is no event type with a signal named {name!r}") from None


def __dir__() -> list[str]:
    return sorted([*__all__, *_events])


_refusals = LimitedLog(logger)
"""For observers that raise at a refusal, which strangers can cause at any rate."""


def emit(signal: Signal, sender: object, **facts: Any) -> None:
    """Call each observer separately: `Signal.send` would stop at the first one that raises."""
    if not signal.receivers:
        return
    for receiver in signal.receivers_for(sender):
        try:
            receiver(sender, **facts)
        except BaseException as error:  # even CancelledError and SystemExit must not stop the delivery
            known = {name: facts[name] for name in _LOGGED if name in facts}
            if "delivery" in facts:
                delivery = facts["delivery"]
                known |= {"delivery_id": delivery.id, "source": delivery.source, "key": delivery.key}
                known |= {"event_type": delivery.event_type, "attempt": delivery.attempt}
            text = "an observer of a lifecycle signal raised"
            if signal is delivery_rejected:
                _refusals.log("observer", logging.ERROR, text, error, **known)
            else:
                logger.exception(text, extra=fields(**known))
