"""Shorten tracebacks of handlers to the frames of the handler."""

from __future__ import annotations

import re

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
