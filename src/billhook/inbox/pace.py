"""Judge how fast deliveries are handled: what could not be stored, a backlog that grows, a slow handler."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import NamedTuple

from billhook.clock import format_duration
from billhook.errors import BacklogFull, DeadlinePassed, InboxUnavailable
from billhook.inbox.counts import NO_DURATION, Counted, hour_of, read_counts
from billhook.inbox.inbox import Inbox
from billhook.inbox.overview import Backlog, percentile

_ATTEMPTS = (Counted.SUCCEEDED, Counted.FAILED, Counted.DEAD, Counted.DISCARDED)
_FINISHED = (Counted.SUCCEEDED, Counted.DEAD, Counted.DISCARDED)
NOT_STORED = tuple(error.cause for error in (InboxUnavailable, DeadlinePassed, BacklogFull))
"""The causes of refusals of genuine deliveries that are the receiver's own; an orderly stop is none of them.

OutOfResources is none either: it is counted before a signature is verified too, so a stranger can cause it.
"""
OLD = timedelta(minutes=10)
"""A delivery that is unfinished for longer needs attention."""
_LATELY = timedelta(minutes=10)
_PAST = timedelta(days=3)
_HOUR = timedelta(hours=1)
_FEWEST_CALLS, _FEWEST_PAST_CALLS = 10, 100
_SLOWER, _SLOW_SECONDS = 3.0, 1.0
_FEWEST_WAITING = 100
_KEEPS_UP = 0.8


class SlowHandler(NamedTuple):
    """A handler of which half of the calls of ten minutes take three times what 95 % took before."""

    name: str
    seconds: float
    before_seconds: float

    @property
    def text(self) -> str:
        """How slow it is, as a part of a sentence."""
        took, before = (format_duration(each) for each in (self.seconds, self.before_seconds))
        return f"{self.name} is slow: half of its calls take over {took}, where 95 % took up to {before}"


def read_not_stored(inbox: Inbox, now: datetime) -> tuple[int, datetime] | None:
    """Return how many deliveries could not be stored in this hour and the one before, and the last of it."""
    with inbox.database.read() as connection:
        counts = read_counts(
            connection,
            inbox.known_types,
            *("what", "cause"),
            since=hour_of(now) - _HOUR,
            only=(Counted.REFUSED,),
        )
    sums = [one for key, one in counts.items() if key.cause in NOT_STORED]
    number = sum(one.number for one in sums)
    return (number, max(one.last_at for one in sums)) if number else None


def read_slow_handlers(inbox: Inbox, now: datetime) -> list[SlowHandler]:
    """Return the handlers that take much longer than they did in the three days before."""
    with inbox.database.read() as connection:
        labels = ("hour", "handler", "what", "bucket")
        lately = read_counts(
            connection, inbox.known_types, *labels, since=now - _LATELY, only=_ATTEMPTS, by_minute=True
        )
        past = read_counts(connection, inbox.known_types, *labels, since=hour_of(now) - _PAST, only=_ATTEMPTS)
    recent: defaultdict[str, Counter[int]] = defaultdict(Counter)
    before: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for found, counts in ((recent, lately), (before, past)):
        for key, sums in counts.items():
            if key.bucket != NO_DURATION:
                found[key.handler][key.bucket] += sums.number
    slow = []
    for name, calls in sorted(recent.items()):
        earlier = before[name] - calls
        if calls.total() < _FEWEST_CALLS or earlier.total() < _FEWEST_PAST_CALLS:
            continue
        half, most = percentile(calls, 0.5), percentile(earlier, 0.95)
        if half is not None and most is not None and half >= max(_SLOW_SECONDS, _SLOWER * most):
            slow.append(SlowHandler(name, half, most))
    return slow


def grows(inbox: Inbox, backlog: Backlog, now: datetime) -> bool:
    """Return whether more comes than is handled, for long enough that deliveries wait for ten minutes.

    After a burst nothing more comes: what waits then becomes less, however much it is.
    """
    if backlog.oldest_at is None or now - backlog.oldest_at <= OLD or backlog.waiting < _FEWEST_WAITING:
        return False
    only = (Counted.ACCEPTED, *_FINISHED)
    with inbox.database.read() as connection:
        counts = read_counts(
            connection,
            inbox.known_types,
            *("hour", "what"),
            since=now - _LATELY,
            only=only,
            by_minute=True,
        )
    numbers: Counter[str] = Counter()
    for key, sums in counts.items():
        numbers[key.what] += sums.number
    came, handled = numbers[Counted.ACCEPTED], sum(numbers[what] for what in _FINISHED)
    # Not of deliveries without a handler, which wait for nothing.
    return handled < _KEEPS_UP * came and backlog.waiting >= came - handled
