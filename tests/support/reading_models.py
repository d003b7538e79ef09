"""Event types of a user's own whose models do their worst, and good handlers; loaded by real workers.

What they do is noted in the working folder: a line with a word and the delivery's key.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

from pydantic import field_validator

from billhook import Delivery, Handlers
from billhook.events import Event, PingTest

handlers = Handlers()
WAYS = {
    "raises": lambda: _raise(BaseException("boo")),
    "exits": lambda: os._exit(9),
    "faults": lambda: ctypes.string_at(0),
    "hangs": lambda: time.sleep(600),
}


def _raise(error: BaseException) -> None:
    raise error


def note(word: str, key: str) -> None:
    """Write a whole line, whoever else writes."""
    descriptor = os.open("notes.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{word} {key}\n".encode())
    os.close(descriptor)


class Worst(Event):
    """What the field says: raise, end the process, or hang."""

    way: str

    @field_validator("way")
    @classmethod
    def act(cls, way: str) -> str:
        note("read", way)
        WAYS.get(way, lambda: None)()
        return way


class Harmless(Event):
    """Beside it."""

    way: str


@handlers.on(Worst, Harmless, PingTest, name="handle")
def handle(event: Any, delivery: Delivery) -> None:
    note("ended", delivery.key)
