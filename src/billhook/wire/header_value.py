"""What credentials can be: they are sent as the value of a header."""

from __future__ import annotations

import re

__all__ = ["HEADER_RULE", "fits_header"]

HEADER_RULE = "must be printable ASCII without spaces, and not empty"


def fits_header(value: str) -> bool:
    """Is HEADER_RULE kept? Anything else an HTTP library refuses, and repeats in its error."""
    return re.fullmatch(r"[!-~]+", value) is not None
