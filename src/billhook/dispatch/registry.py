"""Handlers: the decorators by which a user's modules register functions, before any app exists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic.alias_generators import to_snake

from billhook.dispatch.handler import IDENTITY_WINDOW_SECONDS, Handler
from billhook.dispatch.retry import RetrySchedule
from billhook.errors import ConfigError, DuplicateHandlerName, LateRegistration
from billhook.events import EVENT_TYPES, Event, UnknownEvent

__all__ = ["Handlers"]

F = TypeVar("F", bound=Callable[..., Any])

LONGEST_WINDOW_SECONDS = 7 * 86_400

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

    def on(
        self,
        *event_types: type[Event],
        name: str | None = None,
        aliases: Iterable[str] = (),
        retry: Iterable[float] | None = None,
        timeout_seconds: float | None = None,
        ordered_by: str | None = None,
        identity: Iterable[str] = (),
        identity_window_seconds: float = IDENTITY_WINDOW_SECONDS,
        sources: Iterable[str] = (),
    ) -> Callable[[F], F]:
        """Register the decorated function for these event types; it stays a plain function.

        `name` (default `module.qualname`) is stored with every run, so keep it when the function moves,
        or list the old one in `aliases`. `retry` is the waits between attempts, in seconds. `sources` are the
        names of the sources whose deliveries it handles; empty means all.

        `ordered_by` is a field of all the event types: deliveries of one source with the same value are
        handled one at a time, in the order of arrival, across all processes; the value None orders nothing.
        `identity` are fields by which content duplicates are recognised: a delivery with the same values as
        another of the last `identity_window_seconds` (at most 7 days) is discarded without a call.

        Raises ConfigError, HandlerSignature, DuplicateHandlerName, LateRegistration.
        """
        if not event_types:
            raise ConfigError("on() needs an event class: on(InvoiceApproved), or on_any() for all of them")
        for event_type in event_types:
            # By identity: a second class of the same name would never get an event.
            if not (isinstance(event_type, type) and EVENT_TYPES.get(event_type.__name__) is event_type):
                raise ConfigError(f"on() takes classes of billhook.events, got {event_type!r}")
        signals = tuple(event_type.signal_name for event_type in event_types)
        return self._register(
            signals,
            name,
            aliases,
            retry,
            timeout_seconds,
            sources,
            ordered_by=_ordered_by(ordered_by, event_types),
            identity=_identity(identity, event_types),
            identity_window_seconds=_window(identity_window_seconds),
        )

    def on_any(
        self,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        retry: Iterable[float] | None = None,
        timeout_seconds: float | None = None,
        sources: Iterable[str] = (),
    ) -> Callable[[F], F]:
        """Register the decorated function for every event type, unknown ones included."""
        return self._register(_ANY, name, aliases, retry, timeout_seconds, sources)

    def on_unknown(
        self,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        retry: Iterable[float] | None = None,
        timeout_seconds: float | None = None,
        sources: Iterable[str] = (),
    ) -> Callable[[F], F]:
        """Register the decorated function for event types without a model in this billhook."""
        return self._register((UnknownEvent.signal_name,), name, aliases, retry, timeout_seconds, sources)

    def _register(
        self,
        signals: tuple[str, ...],
        name: str | None,
        aliases: Iterable[str],
        retry: Iterable[float] | None,
        timeout_seconds: float | None,
        sources: Iterable[str],
        **terms: Any,
    ) -> Callable[[F], F]:
        # A text is an iterable of its letters: each of these would otherwise be accepted, and mean nonsense.
        if isinstance(aliases, str):
            raise ConfigError(f"aliases is the text {aliases!r}: give a tuple, aliases=({aliases!r},)")
        if isinstance(sources, str):
            raise ConfigError(f"sources is the text {sources!r}: give a tuple, sources=({sources!r},)")
        if isinstance(retry, str):
            raise ConfigError(f"retry is the text {retry!r}: give the waits in seconds, retry=[10, 60]")
        if timeout_seconds is not None and not (
            isinstance(timeout_seconds, int | float) and 0 < timeout_seconds <= 86_400
        ):
            raise ConfigError(f"timeout_seconds is {timeout_seconds!r}: it must be above 0 and at most 86400")
        schedule = None if retry is None else RetrySchedule.of(retry)
        named = tuple(sources)

        def register(function: F) -> F:
            handler = Handler(
                function,
                name=name,
                aliases=tuple(aliases),
                retry=schedule,
                timeout_seconds=timeout_seconds,
                sources=named,
                **terms,
            )
            # An app that is set up already would never call it: better an error at the import.
            if self._frozen:
                raise LateRegistration(handler.name)
            for one in (handler.name, *handler.aliases):
                if one in self._names:
                    raise DuplicateHandlerName(one)
                self._names.add(one)
            self._registered.append((signals, handler))
            return function

        return register

    def freeze(self) -> list[tuple[tuple[str, ...], Handler]]:
        """Refuse further registrations; return those made: (signal names, handler). For Billhook."""
        self._frozen = True
        # Resolved here, not by the decorator: modules imported later may declare event types of their own.
        every = (*(model.signal_name for model in EVENT_TYPES.values()), UnknownEvent.signal_name)
        return [(every if signals is _ANY else signals, handler) for signals, handler in self._registered]


def _ordered_by(field: str | None, event_types: Iterable[type[Event]]) -> str | None:
    if field is not None:
        _check_field("ordered_by", field, event_types)
    return field


def _identity(fields: Iterable[str], event_types: Iterable[type[Event]]) -> tuple[str, ...]:
    if isinstance(fields, str):
        raise ConfigError(f"identity is the text {fields!r}: give a tuple, identity=({fields!r},)")
    fields = tuple(fields)
    for field in fields:
        _check_field("identity", field, event_types)
    return fields


def _check_field(option: str, field: object, event_types: Iterable[type[Event]]) -> None:
    for event_type in event_types:
        known = event_type.model_fields
        if field not in known:
            near = get_close_matches(to_snake(str(field)), known, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(known) or 'none'}"
            raise ConfigError(f"{option} names {field!r}, which is no field of {event_type.type}: {hint}")


def _window(seconds: float) -> float:
    if not (isinstance(seconds, int | float) and 0 < seconds <= LONGEST_WINDOW_SECONDS):
        raise ConfigError(
            f"identity_window_seconds is {seconds!r}: it must be above 0 and at most 604800 (7 days, "
            "for so long every delivery is kept)"
        )
    return float(seconds)
