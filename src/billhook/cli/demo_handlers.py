"""The demo's handler: it appends each call to a file in the demo's folder, where its processes run.

A module of its own: the demo's processes load it by its name, as they load a user's handlers.
"""

from __future__ import annotations

import json
from pathlib import Path

from billhook import Delivery, Handlers
from billhook.events import Event, UnknownEvent

NOTES = "handled.jsonl"

handlers = Handlers()


@handlers.on_any(name="demo")
def note(event: Event | UnknownEvent, delivery: Delivery) -> None:
    """Append a line for this call."""
    body = event.to_json().decode()
    line = json.dumps([delivery.key, delivery.event_type, type(event).__name__, body])
    # Unbuffered, so that it is one write: handlers run in several threads.
    with Path(NOTES).open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())
