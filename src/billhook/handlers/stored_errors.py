"""Read the errors that the inbox stores: why a delivery waits, and the traceback of a handler."""

from __future__ import annotations

import json
import re
from typing import Any


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
