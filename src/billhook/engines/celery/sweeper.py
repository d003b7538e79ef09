"""The sweeper: finds deliveries whose message was lost, dropped or never sent.

A lost message cannot be told from one that still waits in the broker's queue. So while the queue has
messages, a delivery that had one gets no second one at first; and each further message for the same delivery
is sent later than the one before. A retry had no message: it gets one when it is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from billhook.clock import Clock
from billhook.inbox import Inbox
from billhook.inbox.pending import PendingDelivery

__all__ = ["Sweeper"]

LIMIT = 500
"""Deliveries read and remembered in a sweep, the longest waiting first."""
SWEEP_SECONDS = 2.0
BUSY_SECONDS = 0.1
"""The pause while a sweep finds as many deliveries as it may read."""
UNREAD_SECONDS = 1.0
"""The age of an unplanned delivery from which its message counts as lost."""
REPUBLISH_SECONDS = 30.0
"""Until the message of a delivery is sent again; doubled each time."""
MAX_REPUBLISH_SECONDS = 3600.0


@dataclass(slots=True)
class _Pending:
    """A delivery that is pending `since` then, to be published at `publish_at` at the latest."""

    since: datetime
    fresh: bool
    publish_at: float
    pause: float = REPUBLISH_SECONDS
    published: bool = False


class Sweeper:
    """Reads the inbox, and remembers what it published for as long as that is pending. For one thread."""

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        release_held: Callable[[], tuple[list[int], datetime | None]] = lambda: ([], None),
    ) -> None:
        """`release_held` makes runs due that wait for their handlers.

        It returns their deliveries, and when to call it again.
        """
        self._inbox = inbox
        self._release_held = release_held
        self._clock = clock
        self._pending: dict[int, _Pending] = {}
        self._full = False
        self._found_any = False
        self._next_due_at: datetime | None = None

    def due(self, delay_seconds: float, queue_length: Callable[[], int]) -> list[int]:
        """Return the deliveries to publish now, the longest waiting first; call `mark_published` for each.

        `delay_seconds` is what other processes are given to publish first. `queue_length` is called only
        when it makes a difference, and may raise anything. Raises InboxUnavailable.
        """
        released, release_at = self._release_held()
        now = self._clock.now()
        found, self._next_due_at = self._inbox.pending(
            received_before=now - timedelta(seconds=max(UNREAD_SECONDS, delay_seconds)),
            due_before=now - timedelta(seconds=delay_seconds),
            limit=LIMIT,
        )
        if release_at is not None:
            self._next_due_at = (
                release_at if self._next_due_at is None else min(release_at, self._next_due_at)
            )
        monotonic = time.monotonic()
        # Built anew each time: what is not pending any more is forgotten, so that this does not grow.
        self._pending = {delivery.delivery_id: self._remembered(delivery, monotonic) for delivery in found}
        self._full = len(found) == LIMIT
        # With an empty queue, a delivery that is pending all the same was never published.
        unpublished = any(pending.fresh and not pending.published for pending in self._pending.values())
        queue_is_empty = unpublished and not queue_length()
        ids = [
            delivery_id
            for delivery_id, pending in self._pending.items()
            if pending.publish_at <= monotonic
            or (not pending.published and (queue_is_empty or not pending.fresh))
        ]
        self._found_any = bool(ids)
        # The messages of the released are used up, however many others are in the queue.
        return list(dict.fromkeys([*released, *ids]))

    def _remembered(self, delivery: PendingDelivery, monotonic: float) -> _Pending:
        """Return its record, unless it is pending for another reason: a later run, a new lease."""
        known = self._pending.get(delivery.delivery_id)
        if known is not None and known.since == delivery.since:
            return known
        return _Pending(delivery.since, delivery.fresh, monotonic + REPUBLISH_SECONDS)

    def mark_published(self, delivery_id: int) -> None:
        """Mark a delivery as published: the broker confirmed its message."""
        pending = self._pending.get(delivery_id)
        if pending is None:  # released just now, and not among those that this sweep read
            return
        pending.published = True
        # Doubled: in a long queue the first message still waits, and each further one only lengthens it.
        pending.publish_at = time.monotonic() + pending.pause
        pending.pause = min(pending.pause * 2, MAX_REPUBLISH_SECONDS)

    def pause_seconds(self, delay_seconds: float) -> float:
        """Return the seconds until the next sweep."""
        if self._full and self._found_any:
            return BUSY_SECONDS
        if self._next_due_at is None:
            return SWEEP_SECONDS
        # Until the next retry is due, plus the delay that leaves it to the workers' own sweeps.
        due_in = (self._next_due_at - self._clock.now()).total_seconds() + delay_seconds
        return min(SWEEP_SECONDS, max(0.01, due_in))
