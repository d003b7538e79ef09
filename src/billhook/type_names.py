"""What may be the name of an event type, and the path of the field that has it in a body.

The billing service's header has names like those of its classes. Other senders write theirs as they like:
`orders/create`, `customer:created`, `a b`. A comma is in none: two lines of one header arrive joined by it.
"""

from __future__ import annotations

import re
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
_LONGEST_PATH: Final = 256


def shown_type(name: str) -> str:
    """Return the name of a type as it is shown: in quotes if it has a blank."""
    return f'"{name}"' if " " in name else name


def is_path(text: object) -> bool:
    """Return whether a text is the path of a field, as `type` or `event.type`: its names, joined by dots."""
    return (
        isinstance(text, str) and len(text) <= _LONGEST_PATH and text.isprintable() and all(text.split("."))
    )
