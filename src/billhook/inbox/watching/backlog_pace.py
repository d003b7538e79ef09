"""Judge how fast deliveries are handled: what could not be stored, a backlog that grows, a slow handler."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, Select, and_, case, func, or_, select

from billhook.clock import format_duration
from billhook.errors import BacklogFull, DeadlinePassed, InboxUnavailable
from billhook.inbox.counting.counts import ATTEMPTS, NO_DURATION, ROWS_READ, Counted, hour_of, read_counts
from billhook.inbox.inbox import Inbox
from billhook.inbox.tables.schema import DUE_RUN, UNREAD, delivery, run
from billhook.inbox.tables.sql import in_values
from billhook.inbox.tables.states import RunState
from billhook.inbox.watching.overview import InboxState, percentile

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
_SHORTEST = timedelta(minutes=2)
"""The shortest time over which the pace of a worker is measured."""
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
    counts = inbox.read_counts("what", "cause", since=hour_of(now) - _HOUR, only=(Counted.REFUSED,))
    sums = [one for key, one in counts.items() if key.cause in NOT_STORED]
    number = sum(one.number for one in sums)
    return (number, max(one.last_at for one in sums)) if number else None


def read_slow_handlers(inbox: Inbox, now: datetime) -> list[SlowHandler]:
    """Return the handlers that take much longer than they did in the three days before."""
    labels = ("hour", "handler", "what", "bucket")
    # In one snapshot: a call that ends between two would be taken for one of the past.
    with inbox.database.read() as connection:
        lately = read_counts(connection, inbox.known_types, labels, now - _LATELY, ATTEMPTS, by_minute=True)
        past = read_counts(connection, inbox.known_types, labels, hour_of(now) - _PAST, ATTEMPTS)
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


def grows(inbox: Inbox, state: InboxState, now: datetime, *, is_open: bool = False) -> bool:
    """Return whether more comes than is handled, for long enough that deliveries wait for ten minutes.

    After a burst nothing more comes: what waits then becomes less, however much it is. Runs of a paused
    handler, and those that are retried later, wait for something else. While the issue `is_open` it goes on
    until half as much waits, or for half as long: it does not end because nothing comes for a while.
    """
    called = [one for one in state.handler_backlogs if not one.paused]
    waiting = state.backlog.unread + sum(one.waiting + one.limited for one in called)
    if waiting < _FEWEST_WAITING // (2 if is_open else 1):
        return False
    # Not before a worker has run for some time, or each stop of all would be a backlog that grows.
    started_at = min((one.started_at for one in state.workers if one.alive), default=now - _LATELY)
    with inbox.database.read() as connection:
        if is_open:
            came_at = first_untried_at(connection, [one.name for one in called], now)
            return came_at is not None and now - came_at > OLD / 2
        oldest = [one.oldest_due_at for one in called] + [_oldest_unread_at(connection)]
        if now - min(filter(None, oldest), default=now) <= OLD or now - started_at < _SHORTEST:
            return False
        since = _within_limit(connection, max(started_at, now - _LATELY), now)
        came = connection.execute(_came(since, now)).scalar_one()
        paused = [one.name for one in state.handler_backlogs if one.paused]
        handled = connection.execute(_handled(since, now, paused)).scalar_one()
    # Not of deliveries without a handler, which wait for nothing.
    waiting += sum(one.paused for one in state.handler_backlogs)
    wait = waiting >= came - handled or any(one.is_capped for one in called)
    return bool(handled < _KEEPS_UP * came and wait)


def first_untried_at(connection: Connection, handlers: Collection[str], now: datetime) -> datetime | None:
    """Return when the delivery came that waits longest for its first attempt, by one of these handlers."""
    found = [_oldest_unread_at(connection)]
    for name in handlers:
        is_due = (DUE_RUN, run.c.handler == name, run.c.due_at <= now)
        untried = select(run.c.delivery_id, run.c.not_before).where(*is_due, run.c.attempts == 0)
        first = untried.order_by(run.c.due_at).limit(1).subquery().c
        received_at = delivery.c.received_at
        # One that an operator put off waits from its time on.
        came_at = case((first.not_before > received_at, first.not_before), else_=received_at)
        found.append(connection.execute(select(came_at).where(delivery.c.id == first.delivery_id)).scalar())
    return min(filter(None, found), default=None)


def _oldest_unread_at(connection: Connection) -> datetime | None:
    oldest = select(delivery.c.received_at).where(UNREAD).order_by(delivery.c.id).limit(1)
    found: datetime | None = connection.execute(oldest).scalar()
    return found


def _within_limit(connection: Connection, since: datetime, now: datetime) -> datetime:
    """Return a time, or a later one after which there are ROWS_READ deliveries and runs at most."""
    newest, at = select(func.max(delivery.c.id)).scalar_subquery(), run.c.finished_at
    before = select(delivery.c.received_at).where(delivery.c.id <= newest - ROWS_READ)
    last = before.order_by(delivery.c.id.desc()).limit(1)
    oldest = select(at).where(at >= since, at <= now).order_by(at.desc()).offset(ROWS_READ).limit(1)
    for limit in (last, oldest):
        found = connection.execute(limit).scalar()
        if found is not None and found <= now:
            since = max(since, found)
    return since


def _came(since: datetime, until: datetime) -> Select[int]:
    """Select how many deliveries came, without conflicts; by time, as a clock may have been set back."""
    newest = select(func.max(delivery.c.id)).scalar_subquery()
    at = delivery.c.received_at
    came = (delivery.c.id > newest - ROWS_READ, at >= since, at <= until)
    return select(func.count()).where(*came, delivery.c.conflict_of.is_(None))


def _handled(since: datetime, until: datetime, paused: Collection[str]) -> Select[int]:
    """Select how many deliveries were handled, of which no other run waits for a worker."""
    other, at = run.alias(), run.c.finished_at
    # With a limit, or SQLite would read all runs in the order of their deliveries.
    finished = select(run.c.delivery_id).where(at >= since, at <= until)
    handled = finished.order_by(at.desc()).limit(ROWS_READ + 1).subquery("finished").c.delivery_id
    waits = or_(
        in_values(other.c.state, [RunState.WAITING.value, RunState.RUNNING.value]),
        and_(other.c.state == RunState.DUE.value, other.c.due_at <= until),
    )
    waits = and_(other.c.delivery_id == handled, waits, ~in_values(other.c.handler, paused))
    return select(func.count(func.distinct(handled))).where(~select(other.c.id).where(waits).exists())
