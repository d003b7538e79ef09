"""Handlers: a user's function and its options, and those connected to an app's event signals.

A handler is the receiver of a blinker signal, either a decorated function (billhook.Handlers) or a plain
receiver that the user connected. Runs are stored under its name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from typing import Any

from billhook.errors import DuplicateHandlerName, HandlerSignature
from billhook.events import EVENT_TYPES, Event, UnknownEvent
from billhook.handlers.delivery import Delivery
from billhook.handlers.field_keys import content_digest, order_key
from billhook.handlers.retry import RetrySchedule
from billhook.signals import event_signal

IDENTITY_WINDOW_SECONDS = 86_400.0
"""How long content duplicates are recognised by default."""


class Handler:
    """A function, its name and its options, called as `handler(sender, event=…, delivery=…)`.

    `aliases` are former names: runs stored under them still belong to it. `retry` overrides the app's
    schedule. `timeout_seconds` bounds one attempt: an async handler is cancelled then, but a thread cannot
    be stopped, so another one may still be running when it is tried again. `ordered_by` is the event field
    whose value is the order key of its runs; with `newest_only` a newer run of the same key replaces those
    that wait. `identity` are the fields by which content duplicates are recognised for
    `identity_window_seconds`. `sources` are the sources whose deliveries it handles; empty means all.
    `at_most` of its runs are under way at once, over all workers; `rate` is a number of runs and the seconds
    in which that number may start; after `pause_after` failed attempts in a row it is paused.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        retry: RetrySchedule | None = None,
        timeout_seconds: float | None = None,
        ordered_by: str | None = None,
        newest_only: bool = False,
        identity: tuple[str, ...] = (),
        identity_window_seconds: float = IDENTITY_WINDOW_SECONDS,
        sources: tuple[str, ...] = (),
        at_most: int | None = None,
        rate: tuple[int, float] | None = None,
        pause_after: int | None = None,
        plain: bool = False,
    ) -> None:
        """`plain`: the function is a blinker receiver, `function(sender, *, event, delivery)`.

        Raises HandlerSignature, unless `plain`.
        """
        self.name = name or _default_name(function)
        self.aliases = aliases
        self.retry = retry
        self.timeout_seconds = timeout_seconds
        self.ordered_by = ordered_by
        self.newest_only = newest_only
        self.identity = identity
        self.identity_window_seconds = identity_window_seconds
        self.sources = sources
        self.at_most = at_most
        self.rate = rate
        self.pause_after = pause_after
        self.function = function
        self.has_run_options = ordered_by is not None or bool(identity)
        """Whether its runs have an order key or a content key, which are made from the event."""
        self._plain = plain
        self._takes_delivery = not plain and _takes_delivery(function, self.name)

    def __call__(self, sender: object, *, event: Event | UnknownEvent, delivery: Delivery) -> object:
        """Call the function and return its result: a coroutine, if it is async (handlers.call runs it)."""
        if self._plain:
            return self.function(sender, event=event, delivery=delivery)
        return self.function(event, delivery) if self._takes_delivery else self.function(event)

    def __repr__(self) -> str:
        return f"<Handler {self.name}>"

    def handles(self, source: str) -> bool:
        """Return whether the handler handles deliveries of that source."""
        return not self.sources or source in self.sources

    @property
    def is_async(self) -> bool:
        """Whether the handler is cancelled at its time-out, because its function is async."""
        function = self.function
        return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004

    @property
    def is_limited(self) -> bool:
        """Whether its claims and results have to be counted, for a limit or for failures in a row."""
        return (self.at_most, self.rate, self.pause_after) != (None, None, None)

    def order_key(self, source: str, event: Event | UnknownEvent) -> str | None:
        """Return the order key of its run for an event; None if its runs are not ordered."""
        return None if self.ordered_by is None else order_key(source, getattr(event, self.ordered_by))

    def content_digest(self, source: str, event: Event | UnknownEvent) -> str | None:
        """Return the digest of the event's identity fields; None if it recognises no duplicates."""
        return content_digest(source, event, self.identity) if self.identity else None


class ConnectedHandlers:
    """The handlers of one app, read from its signals at each call: plain receivers may come and go."""

    def __init__(self, sender: object) -> None:
        self._sender = sender

    def by_name(self, event_type: str, *, unique: bool = True) -> dict[str, Handler]:
        """Return the handlers of an event type (or of `unknown_event`). Raises DuplicateHandlerName.

        Without `unique` the first of each name: if two handlers share one, its runs fail when called.
        """
        model = EVENT_TYPES.get(event_type)
        signal = event_signal(model.signal_name if model else UnknownEvent.signal_name)
        found: dict[str, Handler] = {}
        for receiver in signal.receivers_for(self._sender):
            handler = receiver if isinstance(receiver, Handler) else Handler(receiver, plain=True)
            # Refuse equal names rather than number them: a stored run has only the name, and must not reach
            # the wrong function.
            if unique and handler.name in found:
                raise DuplicateHandlerName(handler.name)
            found.setdefault(handler.name, handler)
        return found

    def count(self) -> int:
        """Return how many handlers there are, for any event type."""
        return len(self.every())

    def every(self) -> list[Handler]:
        """Return the handlers of all event types, one for each name."""
        signals = (*EVENT_TYPES, UnknownEvent.signal_name)
        found = {
            handler.name: handler for event_type in signals for handler in self.for_event_type(event_type)
        }
        return list(found.values())

    def names(self, event_type: str) -> tuple[str, ...]:
        """Return the handler names of an event type."""
        return tuple(handler.name for handler in self.for_event_type(event_type))

    def for_event_type(self, event_type: str) -> list[Handler]:
        """Return one handler for each name."""
        return list(self.by_name(event_type, unique=False).values())

    def find(self, event_type: str, name: str) -> Handler | None:
        """Return the handler that a stored run belongs to, by its name or one of its aliases.

        Raises DuplicateHandlerName.
        """
        found = self.by_name(event_type)
        # A name takes precedence over an alias: a new handler may have taken the former name of another one.
        if name in found:
            return found[name]
        return next((handler for handler in found.values() if name in handler.aliases), None)

    def check_names(self) -> None:
        """Raise DuplicateHandlerName if two handlers of one event type have the same name."""
        for event_type in (*EVENT_TYPES, UnknownEvent.signal_name):
            self.by_name(event_type)


def connect(registered: Iterable[tuple[tuple[str, ...], Handler]], sender: object) -> None:
    """Connect decorated handlers to their signals for one app."""
    for signals, handler in registered:
        for name in signals:
            # Do not connect weakly: only the registry holds the handler, so blinker would drop it.
            event_signal(name).connect(handler, sender=sender, weak=False)


def _default_name(function: Callable[..., Any]) -> str:
    """Return `module.qualname`, of the class if `function` is a callable object."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _takes_delivery(function: Callable[..., Any], name: str) -> bool:
    """Return True for (event, delivery), False for (event). Raises HandlerSignature for anything else."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise HandlerSignature(name, "of a generator, which does nothing when called")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise HandlerSignature(name, "that cannot be read") from None
    # Bind values rather than count parameters, which handles *args, defaults and functools.partial. Try two
    # first, because a handler that can take the delivery should get it.
    for takes_delivery in (True, False):
        try:
            signature.bind(*([None, None] if takes_delivery else [None]))
        except TypeError:
            continue
        return takes_delivery
    raise HandlerSignature(name, str(signature))
