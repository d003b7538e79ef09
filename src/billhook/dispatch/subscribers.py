"""Who must handle an event: the receivers of its blinker signal, decorated or plainly connected alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from billhook.dispatch.handler import IDENTITY_WINDOW_SECONDS, Handler, default_name
from billhook.dispatch.keys import digest, order_key
from billhook.errors import DuplicateHandlerName
from billhook.events import EVENT_TYPES, Event, UnknownEvent
from billhook.signals import event_signal

__all__ = ["Subscriber", "Subscribers", "connect"]


class Subscriber:
    """A receiver of a signal under the name its runs are stored with."""

    __slots__ = (
        "aliases",
        "identity",
        "identity_window_seconds",
        "name",
        "ordered_by",
        "receiver",
        "retry",
        "sources",
        "timeout_seconds",
    )

    def __init__(self, receiver: Callable[..., Any]) -> None:
        self.receiver = receiver
        decorated = receiver if isinstance(receiver, Handler) else None
        self.name = decorated.name if decorated else default_name(receiver)
        self.aliases = decorated.aliases if decorated else ()
        self.retry = decorated.retry if decorated else None
        self.timeout_seconds = decorated.timeout_seconds if decorated else None
        self.sources = decorated.sources if decorated else ()
        self.ordered_by = decorated.ordered_by if decorated else None
        self.identity = decorated.identity if decorated else ()
        self.identity_window_seconds = (
            decorated.identity_window_seconds if decorated else IDENTITY_WINDOW_SECONDS
        )

    def handles(self, source: str) -> bool:
        """Whether deliveries of that source are meant for it."""
        return not self.sources or source in self.sources

    @property
    def has_terms(self) -> bool:
        """Whether its runs depend on what the event says."""
        return self.ordered_by is not None or bool(self.identity)

    def order_key(self, source: str, event: Event | UnknownEvent) -> str | None:
        """The order that the event's run takes its turn in, if it is in any."""
        return None if self.ordered_by is None else order_key(source, getattr(event, self.ordered_by))

    def digest(self, source: str, event: Event | UnknownEvent) -> str | None:
        """By what the event is known should it come again, if this subscriber asks for that."""
        return digest(source, event, self.identity) if self.identity else None


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

    def count(self) -> int:
        """Return how many there are, whatever they handle."""
        signals = (*EVENT_TYPES, UnknownEvent.signal_name)
        return len({name for event_type in signals for name in self.names(event_type)})

    def names(self, event_type: str) -> tuple[str, ...]:
        """The names to plan runs for; one that two subscribers came to share fails when it is called."""
        return tuple(one.name for one in self.each(event_type))

    def each(self, event_type: str) -> list[Subscriber]:
        """One subscriber for each of these names."""
        found: dict[str, Subscriber] = {}
        for subscriber in self._all(event_type):
            found.setdefault(subscriber.name, subscriber)
        return list(found.values())

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
