"""What operators see of handlers: their event types, their tracebacks, and why a delivery waits."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Any

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
    known = {name for handler in connected.every() for name in (handler.name, *handler.aliases)}
    return [name for name in stored if name not in known]


def missing_remedy(name: str) -> str:
    """Return what to do about the runs of a handler that is not registered under this name any more."""
    alias, quoted = json.dumps(name, ensure_ascii=False), shlex.quote(name)
    return in_program(
        f"if it has a new name or module, add aliases=[{alias}] there; if it was removed, `billhook "
        f"deliveries discard --handler {quoted} --reason removed` ends its deliveries, and with them what is "
        "unfinished of their other handlers"
    )


def parse_error(text: str) -> dict[str, Any]:
    """Return why a delivery is quarantined or discarded: `error`, and `details` with `loc` and `msg`."""
    # The engine stores a parser's errors as JSON, `discard` stores the user's reason as plain text, and that
    # text may happen to be JSON of another form.
    try:
        error = json.loads(text)
    except ValueError:
        error = None
    return error if isinstance(error, dict) and "error" in error else {"error": text, "details": []}


_CALLER = re.compile(
    r'  File "[^"]*/(?:billhook/handlers/(?:call|handler|event_loop)'
    r"|asyncio/(?:runners|base_events)|concurrent/futures/(?:_base|thread))\.py\", "
)
"""A frame of the code that calls handlers; frames of the standard library belong to async handlers."""


def users_frames(traceback: str) -> str:
    """Drop the frames above the handler's, which do not help to find the error."""
    shown: list[str] = []
    skipping = at_head = False
    for line in traceback.splitlines():
        if line.startswith('  File "'):
            # Drop them only at the start of a traceback: frames of billhook that the handler itself calls are
            # shown.
            skipping = at_head and _CALLER.match(line) is not None
            at_head = skipping
        # Lines indented by four belong to the frame above them; any other line ends the frames, and a chained
        # exception begins another traceback.
        elif not line.startswith("    "):
            skipping, at_head = False, line.startswith("Traceback ")
        if not skipping:
            shown.append(line)
    return "\n".join(shown)
