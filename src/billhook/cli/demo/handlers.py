"""The demo's handler: it appends each call to a file beside the demo's inbox.

A module of its own: the demo's processes load it by its name, as they load a user's handlers.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

from flask import current_app

from billhook import Delivery, Handlers
from billhook.events import Event, UnknownEvent
from billhook.extension import get_state

__all__ = ["NOTES", "handlers"]

NOTES = "handled.jsonl"

handlers = Handlers()


@handlers.on_any(name="demo")
def note(event: Event | UnknownEvent, delivery: Delivery) -> None:
    """Append a line for this call."""
    line = {
        "key": delivery.key,
        "type": delivery.event_type,
        "class": type(event).__name__,
        "attempt": delivery.attempt,
        "event": base64.b64encode(event.to_json()).decode("ascii"),
    }
    path = Path(get_state(current_app).inbox.database.display_url).with_name(NOTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        # One write of one line: handlers run in several threads.
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)
