"""Who must handle an event: the receivers of its blinker signal, decorated or plainly connected alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from billhook.dispatch.handler import Handler, default_name
from billhook.errors import DuplicateHandlerName
from billhook.events import EVENT_TYPES, UnknownEvent
from billhook.signals import event_signal

__all__ = ["Subscriber", "Subscribers", "connect"]


class Subscriber:
    """A receiver of a signal under the name its runs are stored with."""

    __slots__ = ("aliases", "name", "receiver", "retry", "timeout_seconds")

    def __init__(self, receiver: Callable[..., Any]) -> None:
        self.receiver = receiver
        decorated = receiver if isinstance(receiver, Handler) else None
        self.name = decorated.name if decorated else default_name(receiver)
        self.aliases = decorated.aliases if decorated else ()
        self.retry = decorated.retry if decorated else None
        self.timeout_seconds = decorated.timeout_seconds if decorated else None


class Subscribers:
    """The subscribers of one app, looked up afresh each time: plain ones may come and go."""

    def __init__(self, sender: object) -> None:
        self._sender = sender

    def of(self, event_type: str) -> dict[str, Subscriber]:
        """By name, those of an event type (or of `unknown_event`). Raises DuplicateHandlerName."""
        found: dict[str, Subscriber] = {}
        for subscriber in self._all(event_type):
            if subscriber.name in found:
                raise DuplicateHandlerName(subscriber.name)
            found[subscriber.name] = subscriber
        return found

    def names(self, event_type: str) -> tuple[str, ...]:
        """The names to plan runs for; one that two subscribers came to share fails when it is called."""
        return tuple(dict.fromkeys(subscriber.name for subscriber in self._all(event_type)))

    def find(self, event_type: str, handler: str) -> Subscriber | None:
        """The subscriber that a stored run belongs to, by its name or one of its aliases."""
        found = self.of(event_type)
        if handler in found:
            return found[handler]
        return next((one for one in found.values() if handler in one.aliases), None)

    def _all(self, event_type: str) -> list[Subscriber]:
        model = EVENT_TYPES.get(event_type)
        signal = event_signal(model.signal_name if model else UnknownEvent.signal_name)
        return [Subscriber(receiver) for receiver in signal.receivers_for(self._sender)]

    def check(self) -> None:
        """At start: raise DuplicateHandlerName if any event type has two subscribers of one name."""
        for event_type in (*EVENT_TYPES, UnknownEvent.signal_name):
            self.of(event_type)


def connect(registered: Iterable[tuple[tuple[str, ...], Handler]], sender: object) -> None:
    """Connect decorated handlers to their signals for one app, held strongly: blinker would forget them."""
    for signals, handler in registered:
        for name in signals:
            event_signal(name).connect(handler, sender=sender, weak=False)
