"""The blinker signals: one per event type, and the lifecycle signals of deliveries and runs.

An event's signal is named for its class in snake_case (`signals.invoice_approved`) and declared by the
class itself, so this module lists none of them. A subscriber is called as
`subscriber(sender, *, event, delivery)`, where the sender is the Flask app.

Lifecycle signals are for observers (metrics, alerts), never for work: they are sent once and are not
retried. A subscriber that raises is logged and stops neither the others nor the delivery.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from blinker import ANY, NamedSignal, Signal

from billhook.basics.callables import function_name, signature_of
from billhook.errors import ConfigError
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

F = TypeVar("F", bound=Callable[..., Any])


class CheckedSignal(NamedSignal):
    """A blinker signal that refuses receivers which it cannot call, and says which one it has lost.

    `facts` are the names by which a receiver gets its arguments, beside the sender.
    """

    def __init__(self, name: str, doc: str | None, facts: tuple[str, ...], *, is_observed: bool) -> None:
        """`is_observed`: its receivers are observers, which are called and not awaited."""
        super().__init__(name, doc)
        self._facts = facts
        self._is_observed = is_observed

    def connect(self, receiver: F, sender: Any = ANY, weak: bool = True) -> F:
        """Connect a receiver, as blinker does. Raises ConfigError for one that would fail at each call."""
        self._check(receiver)
        number = len(self.receivers)
        super().connect(receiver, sender, weak)
        if weak and len(self.receivers) > number:
            key = next(reversed(self.receivers))
            held = receiver.__self__ if inspect.ismethod(receiver) else receiver
            alive: Callable[[], Any] = lambda: sender  # noqa: E731
            with suppress(TypeError):  # some senders cannot be referred to weakly, such as texts
                alive = weakref.ref(sender)
            said = (key, function_name(receiver), alive)
            # Made after blinker's own reference, so called before that disconnects the receiver.
            weakref.finalize(held, self._say_lost, *said).atexit = False
        return receiver

    def _say_lost(self, key: object, name: str, sender: Callable[[], Any]) -> None:
        if key in self.receivers and sender() is not None:
            logger.warning(
                "%s is not called any more: nothing holds the function, and signals.%s does so weakly: "
                "connect a function of a module, or connect(…, weak=False)", name, self.name,
            )  # fmt: skip

    def _check(self, receiver: Callable[..., Any]) -> None:
        name, signal = function_name(receiver), f"signals.{self.name}"
        called = (receiver, getattr(receiver, "__call__", None))  # noqa: B004 - an object's own
        if self._is_observed and any(map(inspect.iscoroutinefunction, called)):
            raise ConfigError(
                f"{name} is async, and {signal} does not await its observers: make it a plain function; what "
                "takes long belongs into a handler"
            )
        if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in called):
            raise ConfigError(
                f"{name} is a generator, which does nothing when {signal} calls it: return instead of yield"
            )
        try:
            signature = signature_of(receiver)
        except (TypeError, ValueError):  # of some functions in C
            return
        try:
            signature.bind(None, **dict.fromkeys(self._facts))
        except TypeError:
            arguments = ", ".join(self._facts)
            raise ConfigError(
                f"{name} has the signature {signature}, and {signal} calls it as (sender, *, {arguments}): "
                "take these, or **facts"
            ) from None


_events: dict[str, CheckedSignal] = {}


def _observed(name: str, when: str, *facts: str) -> Signal:
    return CheckedSignal(name, f"{when}: {', '.join(facts)}.", facts, is_observed=True)


delivery_accepted = _observed("delivery_accepted", "Stored", "source", "key", "event_type", "delivery_id")
delivery_duplicate = _observed("delivery_duplicate", "Had already", "source", "key", "event_type")
delivery_conflict = _observed(
    "delivery_conflict",
    "A stored key came under another type, or with other bytes, and is quarantined",
    *("source", "key", "event_type", "stored_event_type", "delivery_id", "conflict_of"),
)
delivery_rejected = _observed("delivery_rejected", "Not taken", "source", "status", "cause")
delivery_quarantined = _observed(
    "delivery_quarantined",
    "Stored, and not handled before an operator decides",
    *("delivery_id", "event_type", "error"),
)
delivery_twin = _observed(
    "delivery_twin",
    "Stored; the handler was not called, because it has handled the same content before",
    *("delivery_id", "event_type", "handler", "twin_of"),
)
handler_started = _observed(
    "handler_started", "About to be called, in the thread that calls it", "delivery", "handler"
)
handler_ended = _observed(
    "handler_ended",
    "Returned or raised, in the same thread",
    *("delivery", "handler", "error", "duration"),
)
handler_succeeded = _observed("handler_succeeded", "Succeeded", "delivery", "handler")
handler_retrying = _observed(
    "handler_retrying", "Failed, and will be tried again", "delivery", "handler", "error", "due_at"
)
handler_dead = _observed("handler_dead", "Failed for good", "delivery", "handler", "error")
handler_paused = _observed("handler_paused", "Paused for its failures", "handler", "why")


EVENT_SIGNALS: Mapping[str, Signal] = MappingProxyType(_events)
"""The signals of event types by their snake_case names; read-only, filled by the classes."""


def event_signal(name: str) -> Signal:
    """Return the signal of an event type by its snake_case name, created at first use."""
    if name not in _events:
        _events[name] = CheckedSignal(name, None, ("event", "delivery"), is_observed=False)
    return _events[name]


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
            if inspect.iscoroutine(result := receiver(sender, **facts)):
                result.close()
                raise TypeError("an observer is not awaited: make it a plain function")  # noqa: TRY301
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
