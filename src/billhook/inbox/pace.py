"""Judge how fast deliveries are handled: what could not be stored, a backlog that grows, a slow handler."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, Select, and_, func, or_, select

from billhook.clock import format_duration
from billhook.errors import BacklogFull, DeadlinePassed, InboxUnavailable
from billhook.inbox.counts import NO_DURATION, ROWS_READ, Counted, hour_of, read_counts
from billhook.inbox.inbox import Inbox
from billhook.inbox.overview import InboxState, percentile
from billhook.inbox.schema import delivery, run
from billhook.inbox.sql import in_states, in_values
from billhook.inbox.states import DeliveryState, RunState

_ATTEMPTS = (Counted.SUCCEEDED, Counted.FAILED, Counted.DEAD, Counted.DISCARDED)
NOT_STORED = tuple(error.cause for error in (InboxUnavailable, DeadlinePassed, BacklogFull))
"""The causes of refusals of genuine deliveries that are the receiver's own; an orderly stop is none of them.

OutOfResources is none either: it is counted before a signature is verified, so a stranger can cause it. A
verified delivery that lacks memory or a thread is counted as InboxUnavailable.
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


def grows(inbox: Inbox, state: InboxState, now: datetime) -> bool:
    """Return whether more comes than is handled, for long enough that deliveries wait for ten minutes.

    After a burst nothing more comes: what waits then becomes less, however much it is. Runs of a paused
    handler, and those that are retried later, wait for something else.
    """
    called = [one for one in state.handler_backlogs if not one.paused]
    waiting = state.backlog.unread + sum(one.waiting + one.limited for one in called)
    if waiting < _FEWEST_WAITING:
        return False
    with inbox.database.read() as connection:
        times = [one.oldest_due_at for one in called] + [connection.execute(_OLDEST_UNREAD).scalar()]
        if now - min((at for at in times if at is not None), default=now) <= OLD:
            return False
        since = _within_limit(connection, now - _LATELY)
        came = connection.execute(_came(since)).scalar_one()
        paused = [one.name for one in state.handler_backlogs if one.paused]
        handled = connection.execute(_handled(since, now, paused)).scalar_one()
    # Not of deliveries without a handler, which wait for nothing.
    wait = waiting >= came - handled or any(one.is_capped for one in called)
    return bool(handled < _KEEPS_UP * came and wait)


_OLDEST_UNREAD = (
    select(delivery.c.received_at)
    .where(in_states(delivery.c.state, DeliveryState.RECEIVED))
    .order_by(delivery.c.id)
    .limit(1)
)


def _within_limit(connection: Connection, since: datetime) -> datetime:
    """Return a time, or a later one: ROWS_READ deliveries and runs at most are of after it."""
    newest, at = select(func.max(delivery.c.id)).scalar_subquery(), run.c.finished_at
    before = select(delivery.c.received_at).where(delivery.c.id <= newest - ROWS_READ)
    last = before.order_by(delivery.c.id.desc()).limit(1)
    oldest = select(at).where(at >= since).order_by(at.desc()).offset(ROWS_READ).limit(1)
    for limit in (last, oldest):
        since = max(since, connection.execute(limit).scalar() or since)
    return since


def _came(since: datetime) -> Select[int]:
    """Select how many deliveries came, but for conflicts."""
    before = select(delivery.c.id).where(delivery.c.received_at < since).order_by(delivery.c.id.desc())
    first = func.coalesce(before.limit(1).scalar_subquery(), 0)
    return select(func.count()).where(delivery.c.id > first, delivery.c.conflict_of.is_(None))


def _handled(since: datetime, now: datetime, paused: Collection[str]) -> Select[int]:
    """Select how many deliveries were handled, of which no other run waits for a worker."""
    other, at = run.alias(), run.c.finished_at
    # With a limit, or SQLite would read all runs in the order of their deliveries.
    finished = select(run.c.delivery_id).where(at >= since).order_by(at.desc()).limit(ROWS_READ + 1)
    handled = finished.subquery("finished").c.delivery_id
    waits = or_(
        in_values(other.c.state, [RunState.WAITING.value, RunState.RUNNING.value]),
        and_(other.c.state == RunState.DUE.value, other.c.due_at <= now),
    )
    waits = and_(other.c.delivery_id == handled, waits, ~in_values(other.c.handler, paused))
    return select(func.count(func.distinct(handled))).where(~select(other.c.id).where(waits).exists())
