"""The sweep: publish again what should be in progress by now.

A lost message cannot be told from one that still waits in the broker's queue. So while the queue has
messages, a delivery that may have one there is published later; and each further message for the same
delivery is sent later than the one before. A retry had no message: it gets one when it is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from billhook.engines.dispatcher import Dispatcher
from billhook.errors import InboxUnavailable
from billhook.inbox import Inbox

LIMIT = 500
"""Deliveries read and remembered in a sweep, the longest waiting first."""
SWEEP_SECONDS = 2.0
BUSY_SECONDS = 0.1
"""The pause after a sweep that found as many deliveries as it may read, and published some."""
UNREAD_AFTER = timedelta(seconds=1)
"""How old an unplanned delivery is when its message may have been lost."""
REPUBLISH_SECONDS = 30.0
"""Until the message of a delivery is sent again; doubled each time."""
MAX_REPUBLISH_SECONDS = 3600.0


@dataclass(eq=False, repr=False)
class Sweeper:
    """Publishes deliveries again whose message was lost, dropped or never sent. For one thread.

    It reads the inbox, and remembers what it published for as long as that is pending.
    """

    inbox: Inbox
    dispatcher: Dispatcher

    def __post_init__(self) -> None:
        # When to publish again what is pending since then, and the pause after that.
        self._published: dict[tuple[int, datetime], tuple[float, float]] = {}
        self.is_unclaimed = False
        """Whether the last sweep found a delivery still pending although its message was sent again."""

    def sweep(self, queue_length: Callable[[], int], publish: Callable[[int], None]) -> float:
        """Publish what should be in progress by now, the longest waiting first.

        Return the seconds until the next sweep. `queue_length` is called only when it makes a difference.
        An error of it or of `publish` ends the sweep. Raises InboxUnavailable: workers have then used up
        messages without effect, so the next sweep publishes all that is pending.
        """
        try:
            return self._sweep(queue_length, publish)
        except InboxUnavailable:
            self._published.clear()
            raise

    def _sweep(self, queue_length: Callable[[], int], publish: Callable[[int], None]) -> float:
        now, monotonic = self.dispatcher.clock.now(), time.monotonic()
        limits, lists = self.dispatcher.limits, self.dispatcher.lists
        lists.look(now)
        # Not what others have to plan or to claim: they sweep, too.
        found, times = self.inbox.pending(
            limits,
            received_before=now - UNREAD_AFTER,
            now=now,
            limit=LIMIT,
            types=lists.types,
            which=lists.may_claim,
        )
        keys = {(each.delivery_id, each.since) for each in found}
        # What is not pending any more is forgotten, and so is what is pending for another reason.
        self._published = {key: turn for key, turn in self._published.items() if key in keys}
        length, count = cache(queue_length), 0

        def is_empty() -> bool:
            return not length()

        def is_long() -> bool:
            """Return whether more messages wait than there are deliveries that may need one."""
            return length() > len(found)

        # A run with a limit waits for its turn.
        old = (each for each in found if (now - each.since).total_seconds() >= REPUBLISH_SECONDS)
        self.is_unclaimed = any(not each.limited for each in old)
        for each in found:
            key = each.delivery_id, each.since
            # The message of a run with a limit is used up if the limit was reached.
            first_pause = SWEEP_SECONDS if each.limited else REPUBLISH_SECONDS
            publish_at, pause = self._published.get(key, (0.0, first_pause))
            if each.limited and pause > first_pause and not is_long():
                publish_at, pause = 0.0, first_pause  # the queue was long, and is not any more
            # A worker with other handlers may have had the message, and left the delivery to those that may.
            if publish_at > monotonic and not (lists.others_differ and is_empty()):
                continue
            young = (now - each.since).total_seconds() < REPUBLISH_SECONDS
            unseen = each.fresh and young and not each.limited and key not in self._published
            # With an empty queue, a delivery that is pending all the same was never published.
            if unseen and not is_empty():
                continue
            if not count:  # a server that only reads, as a standby in a failover
                self.inbox.check_writable()
            publish(each.delivery_id)
            count += 1
            # Doubled: in a long queue the first message still waits, and each further one only lengthens it.
            # So does that of a run with a limit: each process that sweeps would send one every two seconds.
            longest = SWEEP_SECONDS if each.limited and not is_long() else MAX_REPUBLISH_SECONDS
            self._published[key] = monotonic + pause, min(pause * 2, longest)
        if count and len(found) == LIMIT:
            return BUSY_SECONDS
        next_at = times.after(now)
        if next_at is None:
            return SWEEP_SECONDS
        return max(0.01, min(SWEEP_SECONDS, (next_at - self.dispatcher.clock.now()).total_seconds()))
