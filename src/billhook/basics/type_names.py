"""What may be the name of an event type, and the path of the field that has it in a body.

The billing service's header has names like those of its classes. Other senders write theirs as they like:
`orders/create`, `customer:created`, `a b`. A comma is in none: two lines of one header arrive joined by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

TYPE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
"""A name in the header of the billing service."""
ANY_TYPE_NAME: Final = re.compile(r"(?![*-]\Z)[!-+\--~](?:[ -+\--~]{0,126}[!-+\--~])?")
"""A name in a header or a field that a source has of its own.

Not * and -, which in the inbox stand for all types without a model, and for none.
"""
ANY_TYPE_NAME_IN_WORDS: Final = (
    "up to 128 characters of printable ASCII, no comma, no blank at an end, neither * nor - alone"
)
READING: Final = "reading "
"""How the name begins under which the run is stored that reads an event by a model of the user's own.

Behind it are the types, joined by a comma and a blank: see billhook.engines.reading. No handler has such a
name.
"""
_MORE: Final = "…"
"""Stands for the types that a name has no room for, which is no name of a type."""
_LONGEST_READING: Final = 1_000
"""An index has the name, with others: PostgreSQL's take 2,704 bytes."""
_LONGEST_PATH: Final = 256


def shown_type(name: str) -> str:
    """Return the name of a type as it is shown: in quotes if it has a blank."""
    return f'"{name}"' if " " in name else name


@lru_cache(1_000)
def is_reading(name: str) -> bool:
    """Return whether a run that is stored under a name reads an event, and calls no handler."""
    return name.startswith(READING)


def reading_of(types: Iterable[str]) -> str:
    """Return the name of the runs that read events of these types; of very many it has the first."""
    name = READING + ", ".join(sorted(types))
    if len(name) <= _LONGEST_READING:
        return name
    return f"{name[:_LONGEST_READING].rpartition(', ')[0]}, {_MORE}"


def types_read(name: str) -> list[str]:
    """Return the types of a run that reads an event, as far as its name has them; none for a handler's."""
    types = name.removeprefix(READING).split(", ") if is_reading(name) else []
    return [each for each in types if each != _MORE]


def is_path(text: object) -> bool:
    """Return whether a text is the path of a field, as `type` or `event.type`: its names, joined by dots."""
    return (
        isinstance(text, str) and len(text) <= _LONGEST_PATH and text.isprintable() and all(text.split("."))
    )
