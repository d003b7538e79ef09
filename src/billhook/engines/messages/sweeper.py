"""The sweep: publish again what should be in progress by now.

A lost message cannot be told from one that still waits in the broker's queue, and a message too many makes
that queue longer. So each delivery that waits has turns, one process sends in each turn, and once at most:

     0 s  what has no message: a retry, a run whose lease has ended, one whose handler was paused. What the
          receiver has published, only if the queue is empty
     5 s  all that waits, but only while the queue holds fewer messages than deliveries wait: its own may be
          among them. The next turns follow after 10 s, 20 s, 40 s and so on, at last every hour
    30 s  a run with a limit, also while the queue is longer: as many as the limit has room for
     1 h  all that waits, also while the queue is longer: it may be one of other tasks, too

All workers with one list of handlers count the same turns, and share the deliveries out among them: by a
hash of the delivery and their names, each delivery has an order of them, in which they take the turns. So one
that starts or hangs, or has died and is still listed, delays what is its own until the next turn.

The message of a run with a limit is used up where the limit was reached. While the queue is short it has a
turn every two seconds, and one process serves all runs of that handler.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from hashlib import blake2b

from billhook.engines.dispatcher import Dispatcher
from billhook.engines.maintenance import WorkerRegistration
from billhook.errors import InboxUnavailable
from billhook.inbox import Inbox
from billhook.inbox.running.due import PendingDelivery
from billhook.inbox.running.workers import read_sharing

LIMIT = 500
"""Deliveries read in a sweep, the longest waiting first."""
SWEEP_SECONDS = 2.0
BUSY_SECONDS = 0.1
"""The pause after a sweep that found as many deliveries as it may read, and published some.

And while this process serves a handler with a limit: each run that ends makes room for one.
"""
UNREAD_AFTER = timedelta(seconds=1)
"""The age of an unplanned delivery from which its message may be lost."""
TURN_SECONDS = 5.0
"""The first turn of a delivery; each is twice as long as the one before."""
MAX_TURN_SECONDS = 3600.0
LATE_SECONDS = 30.0
"""A delivery that has waited for so long is late: no worker has had its message, or in vain."""


def turn_at(seconds: float) -> int:
    """Return the number of the turn that a delivery has after it has waited for so long."""
    doubled = int(math.log2(MAX_TURN_SECONDS / TURN_SECONDS)) + 1
    hourly_from = TURN_SECONDS * (2**doubled - 1)
    if seconds < hourly_from:
        return int(math.log2(seconds / TURN_SECONDS + 1))
    return doubled + int((seconds - hourly_from) / MAX_TURN_SECONDS)


@lru_cache(maxsize=4 * LIMIT)
def order_of(owners: tuple[str, ...], what: str) -> list[str]:
    """Return the order in which workers take the turns of a delivery, or of a handler.

    It is as good as random, and that of the others stays as it is when one comes or goes.
    """
    return sorted(owners, key=lambda owner: blake2b(f"{owner} {what}".encode(), digest_size=8).digest())


@dataclass(slots=True)
class _Turns:
    """The turns of a delivery: since when it waits, when that was last seen, and which turn was taken here.

    `may_have_message`: it had one when it began to wait. A turn is its number, and whether it is one of those
    every two seconds.
    """

    since: float
    seen_at: float
    may_have_message: bool
    sent: tuple[bool, int] | None = None


class _Queue:
    """The broker's queue at the time of a sweep, asked at most once, and what the sweep has sent there."""

    def __init__(self, ask: Callable[[], int], found: int) -> None:
        """`found` deliveries wait."""
        self._ask = ask
        self._found = found
        self.sent = 0

    @cached_property
    def length(self) -> int:
        """The messages that waited before the sweep."""
        return self._ask()

    @property
    def is_long(self) -> bool:
        """Whether more messages waited than there are deliveries that may need one."""
        return self.length > self._found

    @property
    def has_room(self) -> bool:
        """Whether fewer messages wait than deliveries."""
        return self.length + self.sent < self._found


@dataclass(eq=False, repr=False)
class Sweeper:
    """Publishes deliveries again whose message was lost, dropped or never sent. For one thread.

    It reads the inbox, and remembers since when each delivery waits. With a `registration` this process
    shares the deliveries with the live workers that have its list of handlers.
    """

    inbox: Inbox
    dispatcher: Dispatcher
    registration: WorkerRegistration | None = None

    def __post_init__(self) -> None:
        self._waiting: dict[tuple[int, datetime], _Turns] = {}
        self._forget_at = 0.0
        self._serving_until = 0.0
        self.is_unclaimed = False
        """Whether a delivery was late at the last sweep, and not by its handler's limit."""

    def sweep(self, queue_length: Callable[[], int], publish: Callable[[int], None]) -> float:
        """Publish what should be in progress by now, the longest waiting first.

        Return the seconds until the next sweep. `queue_length` is called only when it makes a difference.
        What it and `publish` raise ends the sweep. Raises InboxUnavailable: workers have used up messages in
        vain then, so that all that is pending at the next sweep begins to wait anew.
        """
        try:
            return self._sweep(queue_length, publish)
        except InboxUnavailable:
            self._waiting.clear()
            raise

    def _sweep(self, queue_length: Callable[[], int], publish: Callable[[int], None]) -> float:
        now, monotonic = self.dispatcher.clock.now(), time.monotonic()
        lists = self.dispatcher.lists
        lists.look(now)
        # Not what others have to plan or to claim: they sweep, too.
        found, times = self.inbox.pending(
            self.dispatcher.limits,
            received_before=now - UNREAD_AFTER,
            now=now,
            limit=LIMIT,
            types=lists.types,
            which=lists.may_claim,
        )
        is_full = len(found) == LIMIT
        # A run with a limit waits for its turn.
        self.is_unclaimed = any(_is_late(each, now) and not each.limited_handler for each in found)
        all_waiting = [self._note(each, now, monotonic, is_full=is_full) for each in found]
        self._forget(monotonic)
        queue, workers = _Queue(queue_length, len(found)), None
        for each, waiting in zip(found, all_waiting, strict=True):
            turn = self._turn(each, monotonic - waiting.since, queue)
            if waiting.sent == turn:
                continue
            workers = workers or self._workers(now)
            order = order_of(workers, each.limited_handler or str(each.delivery_id))
            own = order[turn[1] % len(order)] == self._name
            if not own or not _may_send(each, waiting, turn, monotonic, queue):
                continue
            if not queue.sent:  # a server that only reads, as a standby in a failover
                self.inbox.check_writable()
            publish(each.delivery_id)
            waiting.sent, queue.sent = turn, queue.sent + 1
            if each.limited_handler:
                self._serving_until = monotonic + SWEEP_SECONDS
        if (queue.sent and is_full) or monotonic < self._serving_until:
            return BUSY_SECONDS
        next_at = times.after(now)
        if next_at is None:
            return SWEEP_SECONDS
        return max(0.01, min(SWEEP_SECONDS, (next_at - self.dispatcher.clock.now()).total_seconds()))

    def _note(self, each: PendingDelivery, now: datetime, monotonic: float, *, is_full: bool) -> _Turns:
        """Return since when a delivery waits."""
        key = each.delivery_id, each.since
        waiting = self._waiting.get(key)
        if waiting is None:
            # Where all that waits is read, what has waited for long was kept from being handled: by a pause.
            may_have_message = each.fresh and (is_full or not _is_late(each, now))
            age = min(LATE_SECONDS, (now - each.since).total_seconds())
            since = monotonic - age if may_have_message else monotonic
            waiting = self._waiting[key] = _Turns(since, monotonic, may_have_message)
        waiting.seen_at = monotonic
        return waiting

    def _forget(self, monotonic: float) -> None:
        """Forget what does not wait any more, but not what cannot be read or claimed for a moment."""
        if monotonic >= self._forget_at:
            self._forget_at = monotonic + SWEEP_SECONDS
            since = monotonic - LATE_SECONDS
            self._waiting = {key: each for key, each in self._waiting.items() if each.seen_at > since}

    def _turn(self, each: PendingDelivery, seconds: float, queue: _Queue) -> tuple[bool, int]:
        """Return the turn of a delivery that has waited for so long."""
        used_up = bool(each.limited_handler) and not queue.is_long
        # A worker with other handlers may have had the message, and left the delivery to those that may.
        used_up = used_up or (self.dispatcher.lists.others_differ and not queue.length)
        return used_up, int(seconds / SWEEP_SECONDS) if used_up else turn_at(seconds)

    @property
    def _name(self) -> str:
        return "" if self.registration is None else self.registration.owner

    def _workers(self, now: datetime) -> tuple[str, ...]:
        """Return the workers that share the deliveries, among them this one."""
        number = self.dispatcher.lists.number
        if self.registration is None or number is None:
            return (self._name,)
        with self.inbox.database.read() as connection:
            others = read_sharing(connection, self.registration.engine, number, now)
        return others if self._name in others else (*others, self._name)


def _is_late(each: PendingDelivery, now: datetime) -> bool:
    return (now - each.since).total_seconds() >= LATE_SECONDS


def _may_send(
    each: PendingDelivery, waiting: _Turns, turn: tuple[bool, int], monotonic: float, queue: _Queue
) -> bool:
    """Return whether a message is to be sent in this turn, as far as the queue tells."""
    used_up, number = turn
    if used_up or (number == 0 and not waiting.may_have_message):
        return True
    if number == 0:
        # With an empty queue, a delivery that is pending all the same was never published.
        return not queue.length
    patience = LATE_SECONDS if each.limited_handler else MAX_TURN_SECONDS
    return monotonic - waiting.since >= patience or queue.has_room
