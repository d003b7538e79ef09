"""What the sandbox takes at most, where the specification says nothing: all of it in one place.

Each has its row in README.md beside this file, "What the specification leaves open".
"""

from __future__ import annotations

__all__ = [
    "LOGIN_BYTES",
    "MAX_AGGREGATED_METERS",
    "MAX_CONDITIONS",
    "MAX_GROUPS",
    "MAX_KEY",
    "MAX_NAMES",
    "MAX_PRODUCTS",
    "MAX_TIMES",
    "USUAL_BYTES",
]

MAX_KEY = 255
"""Characters of a name, an alias, a ref or an id of the user's: PostgreSQL's indexes take no 3,000 bytes."""
MAX_NAMES = 100
"""Aliases of a customer, and counterparts at other providers."""
MAX_PRODUCTS = 1000
"""Products of a contract or a plan."""
MAX_CONDITIONS = 100
"""Filters of a meter, and values of a filter."""
MAX_AGGREGATED_METERS = 100
"""Meters in one aggregation."""
MAX_GROUPS = 10_000
"""Groups in its answer."""
MAX_TIMES = 2**31 - 1
"""Deliveries that one fault strikes: what a column of PostgreSQL's integers holds."""

USUAL_BYTES = 1024 * 1024
"""Of a body; batches of events have a limit of the specification."""
LOGIN_BYTES = 16 * 1024
"""The same where no token is needed to send it."""
