"""Handlers: the decorators by which a user's modules register functions, before any app exists."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isfunction
from typing import Any, TypeVar, Unpack, overload

from billhook.dispatch.handler import Handler
from billhook.dispatch.options import EventHandlerOptions, HandlerOptions, parse_options
from billhook.dispatch.registration import Registration
from billhook.errors import ConfigError, DuplicateHandlerName, LateRegistration
from billhook.events import EVENT_TYPES, Event, UnknownEvent

__all__ = ["Handlers"]

A = TypeVar("A", bound=Event)
B = TypeVar("B", bound=Event)
C = TypeVar("C", bound=Event)
D = TypeVar("D", bound=Event)
E = TypeVar("E", bound=Event)

_ANY = ("*",)
"""Every event type known when the app is set up: a type may be declared after the decorator ran."""


class Handlers:
    """A group of handlers, registered by decorator and given to `Billhook(handlers=[…])`.

    >>> from billhook.events import InvoiceApproved
    >>> handlers = Handlers()
    >>> @handlers.on(InvoiceApproved, timeout_seconds=30)
    ... def send(event: InvoiceApproved) -> None: ...
    """

    def __init__(self) -> None:
        self._registered: list[tuple[tuple[str, ...], Handler]] = []
        self._names: set[str] = set()
        self._frozen = False

    # Of more than five event types a type checker sees `Event`: the parameter of such a handler is an Event.
    @overload
    def on(self, a: type[A], /, **options: Unpack[EventHandlerOptions]) -> Registration[A]: ...
    @overload
    def on(
        self, a: type[A], b: type[B], /, **options: Unpack[EventHandlerOptions]
    ) -> Registration[A | B]: ...
    @overload
    def on(
        self, a: type[A], b: type[B], c: type[C], /, **options: Unpack[EventHandlerOptions]
    ) -> Registration[A | B | C]: ...
    @overload
    def on(
        self, a: type[A], b: type[B], c: type[C], d: type[D], /, **options: Unpack[EventHandlerOptions]
    ) -> Registration[A | B | C | D]: ...
    @overload
    def on(
        self,
        a: type[A],
        b: type[B],
        c: type[C],
        d: type[D],
        e: type[E],
        /,
        **options: Unpack[EventHandlerOptions],
    ) -> Registration[A | B | C | D | E]: ...
    @overload
    def on(
        self,
        a: type[Event],
        b: type[Event],
        c: type[Event],
        d: type[Event],
        e: type[Event],
        f: type[Event],
        /,
        *more: type[Event],
        **options: Unpack[EventHandlerOptions],
    ) -> Registration[Event]: ...
    def on(self, *event_types: type[Event], **options: Unpack[EventHandlerOptions]) -> Registration[Any]:
        """Register the decorated function for these event types; it stays a plain function.

        Options: `name`, `aliases`, `retry`, `timeout_seconds`, `sources` (see HandlerOptions), `ordered_by`,
        `newest_only`, `identity`, `identity_window_seconds` (see EventHandlerOptions).

        Raises ConfigError, HandlerSignature, DuplicateHandlerName, LateRegistration.
        """
        if not event_types:
            raise ConfigError("on() needs an event class: on(InvoiceApproved), or on_any() for all of them")
        for event_type in event_types:
            # By identity: a second class of the same name would never get an event.
            if not (isinstance(event_type, type) and EVENT_TYPES.get(event_type.__name__) is event_type):
                if isfunction(event_type):  # a handler below `@handlers.on`, without parentheses
                    raise ConfigError("on() needs an event class: @handlers.on(InvoiceApproved), or on_any()")
                raise ConfigError(f"on() takes classes of billhook.events, got {event_type!r}")
        signals = tuple(event_type.signal_name for event_type in event_types)
        terms = parse_options("on", EventHandlerOptions, options, event_types)
        return Registration(partial(self._add, signals, terms))

    def on_any(self, **options: Unpack[HandlerOptions]) -> Registration[Event | UnknownEvent]:
        """Register the decorated function for every event type, unknown ones included."""
        return Registration(partial(self._add, _ANY, parse_options("on_any", HandlerOptions, options)))

    def on_unknown(self, **options: Unpack[HandlerOptions]) -> Registration[UnknownEvent]:
        """Register the decorated function for event types without a model in this billhook."""
        terms = parse_options("on_unknown", HandlerOptions, options)
        return Registration(partial(self._add, (UnknownEvent.signal_name,), terms))

    def _add(self, signals: tuple[str, ...], terms: dict[str, Any], function: Callable[..., Any]) -> None:
        handler = Handler(function, **terms)
        # An app that is set up already would never call it: better an error at the import.
        if self._frozen:
            raise LateRegistration(handler.name)
        for name in (handler.name, *handler.aliases):
            if name in self._names:
                raise DuplicateHandlerName(name)
            self._names.add(name)
        self._registered.append((signals, handler))

    def freeze(self) -> list[tuple[tuple[str, ...], Handler]]:
        """Refuse further registrations; return those made: (signal names, handler). For Billhook."""
        self._frozen = True
        # Resolved here, not by the decorator: modules imported later may declare event types of their own.
        every = (*(model.signal_name for model in EVENT_TYPES.values()), UnknownEvent.signal_name)
        return [(every if signals is _ANY else signals, handler) for signals, handler in self._registered]
