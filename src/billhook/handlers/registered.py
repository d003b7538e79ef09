"""Compare the registered handlers with the event types, and with the names that runs are stored under."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable

from billhook.events import EVENT_TYPES, UnknownEvent
from billhook.handlers.handler import ConnectedHandlers, Handler
from billhook.program import in_program


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


def missing_names(connected: ConnectedHandlers, stored: Iterable[str]) -> list[str]:
    """Return the names, of those that runs are stored under, that no handler has or has had."""
    known = {name for handler in connected.every() for name in handler.names}
    return [name for name in stored if name not in known]


def missing_remedy(name: str) -> str:
    """Return what to do about the runs of a handler that is not registered under this name any more."""
    alias, quoted = json.dumps(name, ensure_ascii=False), shlex.quote(name)
    return in_program(
        f"if it has a new name or module, add aliases=[{alias}] there; if it was removed, `billhook "
        f"deliveries discard --handler {quoted} --reason removed` ends its deliveries, and with them what is "
        "unfinished of their other handlers"
    )
