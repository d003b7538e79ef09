"""The demo's handler: notes what it got, beside the demo's inbox."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

from flask import current_app

from billhook import Delivery, Handlers
from billhook.events import Event, UnknownEvent
from billhook.extension import assembly_of

__all__ = ["NOTES", "handlers"]

NOTES = "handled.jsonl"

handlers = Handlers()


@handlers.on_any(name="demo")
def note(event: Event | UnknownEvent, delivery: Delivery) -> None:
    """One line for each call, in one write: calls come from several threads."""
    line = {
        "key": delivery.key,
        "type": delivery.event_type,
        "class": type(event).__name__,
        "attempt": delivery.attempt,
        "event": base64.b64encode(event.to_json()).decode("ascii"),
    }
    path = Path(assembly_of(current_app).inbox.database.place).with_name(NOTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)
