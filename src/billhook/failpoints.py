"""Places where a test may have this process die: BILLHOOK_FAILPOINT=after_claim, or after_claim:3 for the
third time it gets there. Unset, as it is anywhere but in tests, each place costs one comparison.
"""

from __future__ import annotations

import itertools
import os
import signal

__all__ = ["FAILPOINTS", "reach"]

FAILPOINTS = (
    "before_insert",  # deliveries verified, nothing stored
    "after_insert",  # committed, nobody told
    "in_plan",  # runs made, not committed; with in_claim and in_settle all of one transaction
    "after_plan",
    "in_claim",
    "after_claim",  # attempts counted, no handler called
    "before_call",
    "after_call",  # the handler returned, nobody knows
    "in_settle",
    "after_settle",
)
"""In the order in which a delivery comes by."""

_armed, _, _times = os.environ.get("BILLHOOK_FAILPOINT", "").partition(":")
_reached = itertools.count(1)


def reach(name: str) -> None:
    """Die here, by SIGKILL, if this is the armed place."""
    if name == _armed and next(_reached) == int(_times or 1):
        os.kill(os.getpid(), signal.SIGKILL)
