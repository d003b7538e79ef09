"""Compare the registered handlers with the event types, and with the names that runs are stored under."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from billhook.basics.printable import counted
from billhook.basics.type_names import is_reading
from billhook.errors.program import in_program
from billhook.events import EVENT_TYPES, UnknownEvent
from billhook.handlers.handler import ConnectedHandlers, Handler


def types_by_handler(
    connected: ConnectedHandlers, unknown: str
) -> tuple[dict[str, tuple[Handler, list[str]]], list[str]]:
    """Return each handler with its event types, by name, and the event types without a handler.

    All types without a model are shown as the one `unknown`.
    """
    handled: dict[str, tuple[Handler, list[str]]] = {}
    unhandled = []
    for event_type, shown in {
        **{name: name for name in EVENT_TYPES},
        UnknownEvent.signal_name: unknown,
    }.items():
        found = connected.by_name(event_type, unique=False).values()
        if not found:
            unhandled.append(shown)
        for handler in found:
            handled.setdefault(handler.name, (handler, []))[1].append(shown)
    return handled, unhandled


def names_of(connected: ConnectedHandlers, name: str) -> tuple[str, ...]:
    """Return the names under which runs of a handler are stored: this one alone if none has or had it."""
    types = (*EVENT_TYPES, UnknownEvent.signal_name)
    every = [handler for each in types for handler in connected.by_name(each, unique=False).values()]
    # A name takes precedence over an alias, as when the handler of a run is looked up.
    found = [handler for handler in every if handler.name == name]
    found = found or [handler for handler in every if name in handler.aliases]
    return tuple(dict.fromkeys([name, *(each for handler in found for each in handler.names)]))


def types_of(connected: ConnectedHandlers, name: str) -> tuple[str, ...] | None:
    """Return the event types of a handler; None if types without a model are among them."""
    if name in connected.names(UnknownEvent.signal_name):
        return None
    return tuple(each for each in EVENT_TYPES if name in connected.names(each))


def missing_names(connected: ConnectedHandlers, stored: Iterable[str]) -> list[str]:
    """Return the names, of those that runs are stored under, that no handler has or has had.

    Not those of the runs that read events of own types, for which there is no handler.
    """
    known = {name for handler in connected.every() for name in handler.names}
    return [name for name in stored if name not in known and not is_reading(name)]


def missing_remedy(name: str) -> str:
    """Return what to do about the runs of a handler that is not registered under this name any more."""
    alias, quoted = json.dumps(name, ensure_ascii=False), shlex.quote(name)
    return in_program(
        f"if it has a new name or module, add aliases=[{alias}] there, or have another handler take over its "
        f"runs with `billhook deliveries replay --handler {quoted} --to NEW`; if it was removed, `billhook "
        f"deliveries discard --handler {quoted} --reason removed` ends its deliveries, and with them what is "
        "unfinished of their other handlers"
    )


def missing_from(connected: ConnectedHandlers) -> Callable[[str, str], bool] | None:
    """Return whether no handler of an event type has, or had, a name; None if no handler is loaded at all.

    Then nothing is known: another process has them.
    """
    if not connected.count():
        return None

    @cache
    def is_missing(event_type: str, name: str) -> bool:
        found = connected.by_name(event_type, unique=False).values()
        return not (is_reading(name) or any(name in handler.names for handler in found))

    return is_missing


def left_alone(connected: ConnectedHandlers, missing: Mapping[str, int]) -> list[str]:
    """Return sentences about runs that were not made due, because their handler is not there: by its name."""
    gone = missing_names(connected, missing)
    told = []
    for name, number in missing.items():
        runs = f"{counted(number, 'run')} of {name} {'is' if number == 1 else 'are'} left as before"
        quoted = shlex.quote(name)
        told.append(
            f"{runs}: no handler has this name; {missing_remedy(name)}"
            if name in gone
            else in_program(
                f"{runs}: the handler does not handle their event type any more; add the type to its "
                f"`@handlers.on(…)`, or have another take them over with `billhook deliveries replay "
                f"--handler {quoted} --to NEW`"
            )
        )
    return told
