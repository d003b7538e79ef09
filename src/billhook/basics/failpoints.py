"""Failpoints: places where tests kill this process, chosen by BILLHOOK_FAILPOINT.

`after_claim` kills it the first time, `after_claim:3` the third time. Unset, as in production, each failpoint
costs one comparison.
"""

from __future__ import annotations

import itertools
import os
import signal

FAILPOINTS = (
    "before_insert",  # deliveries verified, nothing stored
    "after_insert",  # committed, not answered
    "in_plan",  # runs made, not committed; with in_claim and in_settle all of one transaction
    "after_plan",
    "in_claim",
    "after_claim",  # attempts counted, no handler called
    "before_call",
    "after_call",  # the handler returned, its result is not stored
    "in_settle",
    "after_settle",
    "in_watermark",  # what happened up to the new watermark is in the hourly counts, not committed
    "after_watermark",
)
"""In the order in which a delivery reaches them."""

_armed, _, _times = os.environ.get("BILLHOOK_FAILPOINT", "").partition(":")
_reached = itertools.count(1)
ARMED = bool(_armed)
"""Whether a failpoint is set: without one, `reach` is not called for each delivery."""


def reach(name: str) -> None:
    """Kill this process with SIGKILL if the failpoint `name` is armed."""
    if name == _armed and next(_reached) == int(_times or 1):
        os.kill(os.getpid(), signal.SIGKILL)
