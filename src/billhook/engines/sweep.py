"""Which deliveries to ring for again: those whose message was lost, dropped, or never sent.

A lost message cannot be told from one that still waits in the broker's queue. So while anything waits there
no second message is sent for what had one already, at first; and each further ring for the same delivery
comes later than the one before. A retry had none: it is rung for when it is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from billhook.clock import Clock
from billhook.inbox import Inbox
from billhook.inbox.overdue import Overdue

__all__ = ["Sweep"]

LIMIT = 500
"""Deliveries looked at, and remembered: those that wait longest."""
LOOK_SECONDS = 2.0
BUSY_SECONDS = 0.1
"""Until the next look while there is more to ring for than one look may find."""
UNREAD_SECONDS = 1.0
"""The age at which a delivery is thought to have lost its message."""
AGAIN_SECONDS = 30.0
"""Until a delivery is rung for again if nothing became of it; doubled each time."""
LONGEST_SECONDS = 3600.0


@dataclass(slots=True)
class _Seen:
    """A delivery that waits, as the inbox says `since` when; to be rung for at `ring_at` at the latest."""

    since: datetime
    fresh: bool
    ring_at: float
    pause: float = AGAIN_SECONDS
    rung: bool = False


class Sweep:
    """Looks into the inbox; remembers what it rang for as long as that waits. For one thread."""

    def __init__(self, inbox: Inbox, clock: Clock) -> None:
        self._inbox = inbox
        self._clock = clock
        self._seen: dict[int, _Seen] = {}
        self._full = False
        self._ringing = False
        self._next_due_at: datetime | None = None

    def look(self, patience_seconds: float, queue_length: Callable[[], int]) -> list[int]:
        """The deliveries to ring for now, longest waiting first; say `rang` for each that was.

        `patience_seconds`: how long others are given to ring first. `queue_length` is asked only when that
        makes a difference, and raises what it likes. Raises InboxUnavailable.
        """
        now = self._clock.now()
        found, self._next_due_at = self._inbox.overdue(
            received_before=now - timedelta(seconds=max(UNREAD_SECONDS, patience_seconds)),
            due_before=now - timedelta(seconds=patience_seconds),
            limit=LIMIT,
        )
        moment = time.monotonic()
        self._seen = {one.delivery_id: self._remembered(one, moment) for one in found}
        self._full = len(found) == LIMIT
        # Nothing waits there, and this here waits all the same: it was never told of.
        empty = any(seen.fresh and not seen.rung for seen in self._seen.values()) and not queue_length()
        ringing = [
            delivery_id
            for delivery_id, seen in self._seen.items()
            if seen.ring_at <= moment or (not seen.rung and (empty or not seen.fresh))
        ]
        self._ringing = bool(ringing)
        return ringing

    def _remembered(self, one: Overdue, moment: float) -> _Seen:
        """What is known of it, unless it waits for something else by now: a later run, another lease."""
        known = self._seen.get(one.delivery_id)
        if known is not None and known.since == one.since:
            return known
        return _Seen(one.since, one.fresh, moment + AGAIN_SECONDS)

    def rang(self, delivery_id: int) -> None:
        """The broker took the message."""
        seen = self._seen[delivery_id]
        seen.rung = True
        seen.ring_at = time.monotonic() + seen.pause
        seen.pause = min(seen.pause * 2, LONGEST_SECONDS)

    def pause_seconds(self, patience_seconds: float) -> float:
        """Until the next look."""
        if self._full and self._ringing:
            return BUSY_SECONDS
        if self._next_due_at is None:
            return LOOK_SECONDS
        due_in = (self._next_due_at - self._clock.now()).total_seconds() + patience_seconds
        return min(LOOK_SECONDS, max(0.01, due_in))
