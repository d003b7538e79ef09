"""When a loop looks again: at what is due, what will be, and what is due and not to be had."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

__all__ = ["LEAST_PAUSE_SECONDS", "SLOW_LOOK_SECONDS", "Outlook"]

SLOW_LOOK_SECONDS = 2.0  # how long a row can lie unseen when its ring was lost
LEAST_PAUSE_SECONDS = 0.01
_MOST_DOUBLINGS = 8


class Outlook:
    """What the last claim found tells whether another one now would find anything."""

    def __init__(self) -> None:
        self._vain = 0

    def claimed(self, count: int, next_due_at: datetime | None, now: datetime) -> None:
        """A claim took so many; then this was the next to be due."""
        left = next_due_at is not None and next_due_at <= now
        self._vain = self._vain + 1 if left and not count else 0

    def worth_claiming(self, next_due_at: datetime | None, now: datetime, *, idle: bool) -> bool:
        """Something is due; and not only what is left to an idle thread, while there is none."""
        return next_due_at is not None and next_due_at <= now and (idle or not self._vain)

    def pause(
        self, next_due_at: datetime | None, now: datetime, others: Iterable[float | None], *, idle: bool
    ) -> float:
        """Seconds to sleep if nobody rings; `others` are the seconds until anything else is to be done."""
        pauses = [SLOW_LOOK_SECONDS, *(each for each in others if each is not None)]
        if next_due_at is not None and next_due_at > now:
            pauses.append((next_due_at - now).total_seconds())
        elif next_due_at is not None and idle:
            # Somebody else is at it. With no idle thread it is ours that must end first, and rings then.
            pauses.append(LEAST_PAUSE_SECONDS * 2 ** min(self._vain, _MOST_DOUBLINGS))
        return max(LEAST_PAUSE_SECONDS, min(pauses))
