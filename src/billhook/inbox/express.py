"""The short way of one plain delivery: look at it, begin its first run, finish its only one.

What is written is what planning, claiming and settling write for many, in as few steps as the database has:
for whoever handles each delivery by itself and pays for every step. Whatever is not plain (an order, twins,
a failure, siblings that may have ended too) goes the general way, billhook.inbox.turn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from billhook.inbox.records import Claim, Outcome, Plan, Stored
from billhook.inbox.states import DeliveryState, RunState, check

__all__ = ["Begin", "Express", "Look", "is_plain"]

Begin = Callable[[Plan, str, datetime, datetime], Claim | None]
"""Plan, owner, now, leased until. Makes the runs of a plain plan, the first of them claimed; commits.

None when somebody else planned it meanwhile.
"""


@dataclass(frozen=True, slots=True)
class Look:
    """A delivery as it is now: `stored` if nobody has read it, with `begin`; else whether a run is `due`."""

    stored: Stored | None
    due: bool
    begin: Begin


class Express(Protocol):
    """What each database has an own way for. Raises InboxUnavailable when the storage fails."""

    def look(self, delivery_id: int, now: datetime) -> AbstractContextManager[Look]:
        """Look at a delivery, and begin it in the block, or not."""
        ...

    def finish(self, outcome: Outcome) -> bool:
        """Settle the success of a delivery's only run; False when its lease was lost."""
        ...


def is_plain(planned: Plan) -> bool:
    """There are handlers to call, and nothing beside that to be done."""
    return bool(planned.handlers) and planned.error is None and not planned.terms


# The steps that are taken there, by the table.
check(DeliveryState.RECEIVED, DeliveryState.PLANNED)
check(DeliveryState.PLANNED, DeliveryState.DONE)
check(RunState.DUE, RunState.RUNNING)
check(RunState.RUNNING, RunState.SUCCEEDED)
