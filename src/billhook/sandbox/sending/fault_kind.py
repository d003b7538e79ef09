"""The ways in which a delivery can go wrong on request."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["SPOILING", "TIMED", "FaultKind"]


class FaultKind(StrEnum):
    """What is done to a delivery."""

    DUPLICATE = "duplicate"
    """Sent twice at the same time."""
    DELAY = "delay"
    """Sent some seconds late."""
    REORDER = "reorder"
    """Held until a later one to the same URL went, some seconds at most."""
    DROP = "drop"
    """The receiver has it, and its answer is lost: it is sent again."""
    CORRUPT = "corrupt"
    """A bit of the body is turned over after signing."""
    WRONG_SECRET = "wrong_secret"  # noqa: S105 - the name of a fault
    """Signed with a secret that nobody knows."""
    STALE = "stale"
    """Signed an hour ago."""


SPOILING = (FaultKind.DROP, FaultKind.CORRUPT, FaultKind.WRONG_SECRET, FaultKind.STALE)
"""After these the delivery is sent again."""

TIMED = {FaultKind.DELAY: 5, FaultKind.REORDER: 10}
"""These have seconds, and as many if none are given."""
