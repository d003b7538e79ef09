"""The limits that the specification leaves open, all in one place.

Each has its row in README.md beside this file, "What the specification leaves open".
"""

from __future__ import annotations

from billhook.sandbox.errors import invalid_request

__all__ = [
    "DEFAULT_BODY_BYTES",
    "MAX_AGGREGATED_METERS",
    "MAX_ALIASES",
    "MAX_CONDITIONS",
    "MAX_GROUPS",
    "MAX_KEY",
    "MAX_LOGIN_BYTES",
    "MAX_PRODUCTS",
    "MAX_TIMES",
    "check_key",
    "key_error",
]


MAX_KEY = 255
"""Characters of a name, an alias, a ref or an external id: PostgreSQL cannot index 3,000 bytes."""
MAX_ALIASES = 100
"""Aliases of a customer; also its counterparts at other providers."""
MAX_PRODUCTS = 1000
"""Products of a contract or of a plan."""
MAX_CONDITIONS = 100
"""Filters of a meter; also values of one filter."""
MAX_AGGREGATED_METERS = 100
"""Meters in one aggregation."""
MAX_GROUPS = 10_000
"""Groups in the response to one aggregation."""
MAX_TIMES = 2**31 - 1
"""Deliveries that one fault strikes: the largest value of a PostgreSQL integer column."""

DEFAULT_BODY_BYTES = 1024 * 1024
"""Limit for a body in bytes; batches of events have the specification's limit."""
MAX_LOGIN_BYTES = 16 * 1024
"""Limit for the body of POST /login, which needs no access token."""


def key_error(text: str) -> str | None:
    """Return what is wrong with `text` as an alias or external id; None if it is valid."""
    if not text.strip():
        return "is empty"
    if len(text) > MAX_KEY:
        return f"has more than {MAX_KEY} characters"
    # PostgreSQL cannot store it in a text.
    if "\0" in text:
        return "holds a NUL character"
    return None


def check_key(text: str, param: str) -> None:
    """Raise 400 for the field `param` if `text` is not a valid key."""
    if fault := key_error(text):
        raise invalid_request(f"{param} {fault}: choose another", param)
