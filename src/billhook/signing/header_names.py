"""The names of headers, as configured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from billhook.errors import ConfigError

__all__ = ["check_header_names"]

TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # Source: RFC 9110, section 5.6.2


def check_header_names(names: Sequence[object]) -> None:
    """Refuse what cannot be a header's name, and one header for two things."""
    lowered: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not TOKEN.fullmatch(name):
            raise ConfigError(f"{name!r} cannot be the name of a header")
        if name.lower() in lowered:
            raise ConfigError(f"the header {name!r} is given two meanings: each needs its own")
        lowered.add(name.lower())
