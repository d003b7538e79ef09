"""The fast path of one delivery: read it, plan and claim its first run, settle its only one.

It writes what planning, claiming and settling write for many deliveries, in as few statements as possible:
for an engine that handles each delivery by itself. Deliveries with run options, failures and siblings that
may have ended too take the general path, billhook.inbox.transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from billhook.inbox.records import Claim, RunPlan, RunResult, StoredDelivery
from billhook.inbox.states import DeliveryState, RunState, check

__all__ = ["DeliverySnapshot", "FastPath", "PlanAndClaim", "is_eligible"]

PlanAndClaim = Callable[[RunPlan, str, datetime, datetime], Claim | None]
"""Plan, owner, now, leased until. Makes the runs of an eligible plan, claims the first, and commits.

Returns None when another worker has planned it meanwhile.
"""


@dataclass(frozen=True, slots=True)
class DeliverySnapshot:
    """A delivery as it is now: `stored` while it is unplanned; else whether a run is `due`."""

    stored: StoredDelivery | None
    due: bool
    plan_and_claim: PlanAndClaim


class FastPath(Protocol):
    """The statements of each database. Raises InboxUnavailable when the storage fails."""

    def read(self, delivery_id: int, now: datetime) -> AbstractContextManager[DeliverySnapshot]:
        """Read a delivery; the block may plan and claim it."""
        ...

    def settle(self, outcome: RunResult) -> bool:
        """Settle the success of a delivery's only run; False when its lease was lost."""
        ...


def is_eligible(planned: RunPlan) -> bool:
    """Return whether the plan only has handlers to call, without options."""
    return bool(planned.handlers) and planned.error is None and not planned.options


# The steps that the statements take must be in the table.
check(DeliveryState.RECEIVED, DeliveryState.PLANNED)
check(DeliveryState.PLANNED, DeliveryState.DONE)
check(RunState.DUE, RunState.RUNNING)
check(RunState.RUNNING, RunState.SUCCEEDED)
