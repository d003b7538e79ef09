"""Handlers: the decorators by which a user's modules register functions, before any app exists.

`on` returns a `Registration[InvoiceApproved]`, which takes what can be called with an InvoiceApproved, and
with a Delivery or without. A type checker refuses any other function; the decorated one keeps its type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isfunction
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from billhook.errors import ConfigError, DuplicateHandlerName, LateRegistration
from billhook.events import EVENT_TYPES, Event, UnknownEvent
from billhook.handlers.annotations import check_annotations
from billhook.handlers.handler import Delivery, Handler
from billhook.handlers.options import EventHandlerOptions, HandlerOptions, parse_options, tell_options

A = TypeVar("A", bound=Event)
B = TypeVar("B", bound=Event)
C = TypeVar("C", bound=Event)
D = TypeVar("D", bound=Event)
E = TypeVar("E", bound=Event)
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
E_co = TypeVar("E_co", covariant=True)
E_contra = TypeVar("E_contra", contravariant=True)

_ANY = ("*",)
"""Every event type known when the app is set up: a type may be declared after the decorator ran."""


class TakesEvent(Protocol[E_contra, P, R_co]):
    """A function that can be called as `(event)`, and whose own parameters are P.

    A function is of this type if it fits both signatures. Python has no other way to write that it is
    `Callable[P, R]`, which says what its type is, and can also be called with the event.
    """

    @overload
    def __call__(self, event: E_contra, /) -> R_co: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class TakesDelivery(Protocol[E_contra, P, R_co]):
    """A function that can be called as `(event, delivery)`, and whose own parameters are P."""

    @overload
    def __call__(self, event: E_contra, delivery: Delivery, /) -> R_co: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Registration(Generic[E_co]):
    """A decorator that registers a handler of the event types `E_co`, and returns the function as it is."""

    def __init__(self, add: Callable[[Callable[..., Any]], None]) -> None:
        """`add` does the work; it raises for a function that can be no handler."""
        self._add = add

    @overload
    def __call__(self, function: TakesEvent[E_co, P, R], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: TakesDelivery[E_co, P, R], /) -> Callable[P, R]: ...
    # mypy needs these for functions with positional-only parameters, such as `list.append`.
    @overload
    def __call__(self, function: Callable[[E_co], R], /) -> Callable[[E_co], R]: ...
    @overload
    def __call__(self, function: Callable[[E_co, Delivery], R], /) -> Callable[[E_co, Delivery], R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Register the function. Raises HandlerSignature, DuplicateHandlerName, LateRegistration."""
        self._add(function)
        return function


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

    # For more than five event types, type checkers see `Event`: such a handler takes an Event.
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
    @tell_options
    def on(self, *event_types: type[Event], **options: Unpack[EventHandlerOptions]) -> Registration[Any]:
        """Register the decorated function for these event types; it stays a plain function.

        Raises ConfigError, HandlerSignature, DuplicateHandlerName, LateRegistration.
        """
        if not event_types:
            raise ConfigError("on() needs an event class: on(InvoiceApproved), or on_any() for all of them")
        for event_type in event_types:
            # Compare by identity: a second class of the same name would never get an event.
            known = EVENT_TYPES.get(str(getattr(event_type, "type", "")))
            if not (isinstance(event_type, type) and known is event_type):
                if isfunction(event_type):  # a handler below `@handlers.on`, without parentheses
                    raise ConfigError("on() needs an event class: @handlers.on(InvoiceApproved), or on_any()")
                raise ConfigError(f"on() takes classes of billhook.events, got {event_type!r}")
        signals = tuple(event_type.signal_name for event_type in event_types)
        parsed = parse_options("on", options, event_types)
        return Registration(partial(self._add, signals, parsed, event_types))

    def on_any(self, **options: Unpack[HandlerOptions]) -> Registration[Event | UnknownEvent]:
        """Register the decorated function for every event type, unknown ones included.

        It takes the options of `on` that need no field of an event.
        """
        parsed = parse_options("on_any", options)
        return Registration(partial(self._add, _ANY, parsed, (Event, UnknownEvent)))

    def on_unknown(self, **options: Unpack[HandlerOptions]) -> Registration[UnknownEvent]:
        """Register the decorated function for event types without a model in this billhook.

        It takes the options of `on` that need no field of an event.
        """
        parsed = parse_options("on_unknown", options)
        return Registration(partial(self._add, (UnknownEvent.signal_name,), parsed, (UnknownEvent,)))

    def _add(
        self,
        signals: tuple[str, ...],
        parsed: dict[str, Any],
        events: tuple[type, ...],
        function: Callable[..., Any],
    ) -> None:
        handler = Handler(function, **parsed)
        check_annotations(function, handler.name, events)
        # An app that is already set up would never call it, so raise an error at the import.
        if self._frozen:
            raise LateRegistration(handler.name)
        for name in handler.names:
            if name in self._names:
                raise DuplicateHandlerName(name)
            self._names.add(name)
        self._registered.append((signals, handler))

    def freeze(self) -> list[tuple[tuple[str, ...], Handler]]:
        """Refuse further registrations; return those made: (signal names, handler). For Billhook."""
        self._frozen = True
        # Resolve the types here and not in the decorator: modules imported later may declare event types.
        every = (*(model.signal_name for model in EVENT_TYPES.values()), UnknownEvent.signal_name)
        return [(every if signals is _ANY else signals, handler) for signals, handler in self._registered]
