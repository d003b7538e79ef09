"""An operation of the API: its request line as the specification has it, and whether it may be repeated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

__all__ = ["Operation"]

_PARAMETER = re.compile(r"\{([A-Za-z]+)\}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One endpoint. Source: spec, "Endpoints".

    `repeatable`: sent twice it is still done once, so it may be sent again when it is not known whether
    the first one arrived.
    """

    method: str
    path: str
    repeatable: bool

    @property
    def name(self) -> str:
        """Method and path as the specification has them."""
        return f"{self.method} {self.path}"

    def address(self, values: Sequence[str]) -> str:
        """The path with its parameters filled in, in their order, percent-encoded.

        Raises ValueError for a value that could not come out as it went in: an empty one, `.` and `..`,
        which servers read as a way through the path, and half a surrogate pair; TypeError for what is no
        text.
        """
        left = iter(values)
        return _PARAMETER.sub(lambda found: _segment(found[1], next(left)), self.path)


def _segment(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {type(value).__name__}")
    try:
        encoded = quote(value, safe="")
    except UnicodeEncodeError:
        encoded = ""
    if encoded in ("", ".", ".."):
        raise ValueError(f"{name} is {value!r}: that cannot be a part of an address")
    return encoded
