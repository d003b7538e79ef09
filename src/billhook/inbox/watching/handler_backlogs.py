"""Read what waits for each handler: how many runs in which state, since when, and when they are through."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection, TextualSelect, bindparam, column, func, select

from billhook.inbox.running.due import names_at_limit
from billhook.inbox.running.limits import find_paused
from billhook.inbox.running.workers import IS_WORKER
from billhook.inbox.tables.handler_names import present_names
from billhook.inbox.tables.records import HandlerLimits, own_name
from billhook.inbox.tables.schema import CLAIMABLE, DEAD_RUN, ORDERED_RUN, handler, run, worker
from billhook.inbox.tables.sql import TextOfTables, UtcDateTime, distinct_values, words
from billhook.inbox.watching.stalled import read_hanging

RUNS_LIMIT = 10_000
"""How far the runs of a handler in one state are counted: a number that is as large means "at least"."""
RATE_OVER = timedelta(minutes=5)
RATE_RUNS = 5_000
"""In an inbox that handles more runs in that time, the last of them tell the rate."""
HANGS_AFTER = timedelta(minutes=1)
"""Until a call may hang: no pace tells when it returns."""
LIMITED_SINCE = timedelta(seconds=5)
"""A handler is limited now if its rate let no run start at some time since then."""


@dataclass(frozen=True, slots=True)
class HandlerBacklog:
    """The unfinished and dead runs of one handler. Numbers are exact below RUNS_LIMIT."""

    name: str
    waiting: int = 0
    """Due, or waiting for their place in an order or for a thread of the worker that has claimed them."""
    running: int = 0
    paused: int = 0
    """Would be waiting if the handler were not paused."""
    limited: int = 0
    """Would be waiting if the handler's rate or number of runs at once let them start."""
    retrying: int = 0
    """Due later: they failed, were put off, or are replayed at a rate."""
    dead: int = 0
    ordered: int = 0
    """How many of the waiting ones wait for an earlier one of their order."""
    oldest_due_at: datetime | None = None
    """Since when the one that waits longest could have been handled."""
    per_second: float = 0.0
    """How many were handled in a second of the last five minutes, or since the first worker of it started."""
    last_due_at: datetime | None = None
    """When the last of those that are `retrying` is due."""
    last_put_off: bool = False
    """Whether that one is not to be called before that time, as its handler or an operator has said."""
    through_at: datetime | None = None
    """When all but the dead are handled at that rate, or at the handler's own if that is lower.

    Not before the last of those that wait for a time is due; that time, where all others wait for these. None
    for a handler that is paused, if none was handled, and while a call of it hangs.
    """
    through_at_least: bool = False
    """Whether `through_at` is the earliest moment only: more runs wait than are counted."""

    @property
    def states(self) -> dict[str, int]:
        """The number of runs in each state."""
        names = ("waiting", "running", "paused", "limited", "retrying", "dead")
        return {name: getattr(self, name) for name in names}

    @property
    def unfinished(self) -> int:
        """How many runs are unfinished: all but the dead."""
        return sum(self.states.values()) - self.dead

    @property
    def only_retrying(self) -> bool:
        """Whether all that is unfinished waits for a time, or for one before it in its order that does."""
        return 0 < self.retrying == self.unfinished - self.ordered

    @property
    def is_capped(self) -> bool:
        """Whether there may be more unfinished runs than were counted."""
        return any(number >= RUNS_LIMIT for state, number in self.states.items() if state != "dead")


def read_handler_backlogs(
    connection: Connection, now: datetime, limits: Mapping[str, HandlerLimits]
) -> list[HandlerBacklog]:
    """Return what waits for each handler that has unfinished or dead runs, by the name that it has now.

    `limits` are by the names that runs are stored under. Where handlers are not loaded there are none: then a
    handler with as many runs under way as it may have is not known as limited.
    """
    renamed = present_names(connection)
    numbers: Counter[tuple[str, str]] = Counter()
    oldest: dict[str, datetime] = {}
    last: dict[str, datetime] = {}
    put_off: dict[str, datetime] = {}
    found = connection.execute(_numbers(), {"now": now, "at_most": RUNS_LIMIT})
    for state, stored_under, number, since in found:
        name = renamed.get(stored_under, stored_under)
        numbers[name, state] += number
        if state == "put off":
            if since is not None and since > now:
                put_off[name] = max(since, put_off.get(name, since))
        elif since is not None and since <= now:
            oldest[name] = min(since, oldest.get(name, since))
        elif since is not None and state == "retrying":
            last[name] = max(since, last.get(name, since))
    names = sorted({name for name, _ in +numbers})
    # By the names that the inbox knows: the code that asks may have an alias that no live process has.
    paused = {one.name for one in find_paused(connection)}
    starts_later = select(handler.c.name).where(handler.c.next_start_at > now - LIMITED_SINCE)
    limited = {*connection.execute(starts_later).scalars(), *names_at_limit(connection, limits, names)}
    rates: defaultdict[str, float] = defaultdict(float)
    for stored_under, per_second in (_rates(connection, now) if names else {}).items():
        rates[renamed.get(stored_under, stored_under)] += per_second
    is_running = any(numbers[name, "running"] for name in names)
    hanging = read_hanging(connection, now, HANGS_AFTER) if is_running else []
    hangs = {own_name(limits, one.handler) for one in hanging}
    backlogs = []
    for name in names:
        own, is_paused = own_name(limits, name), name in paused
        states: defaultdict[str, Any] = defaultdict(int)
        states |= {state: numbers[name, state] for state in ("running", "retrying", "dead")}
        # A run in an order waits for the one before it; if the handler is paused, for that.
        states["paused" if is_paused else "waiting"] += numbers[name, "waiting"]
        states["ordered"] = 0 if is_paused else numbers[name, "waiting"]
        states["waiting"] += numbers[name, "queued"]
        due = "paused" if is_paused else "limited" if own in limited else "waiting"
        states[due] += numbers[name, "due"]
        one = HandlerBacklog(
            name, **states, oldest_due_at=oldest.get(name), last_due_at=last.get(name),
            last_put_off=name in last and put_off.get(name) == last[name],
            per_second=rates.get(name, 0.0),
        )  # fmt: skip
        if not is_paused and own not in hangs:
            one = _with_time(one, now, limits.get(name))
        backlogs.append(one)
    return backlogs


def _with_time(one: HandlerBacklog, now: datetime, limits: HandlerLimits | None) -> HandlerBacklog:
    """Return a backlog with the time when it is through, as far as that is known."""
    rate, last_due_at = one.per_second, one.last_due_at
    if one.only_retrying:  # no pace decides it: each begins when it is due
        return replace(one, through_at=last_due_at, through_at_least=one.ordered > 0)
    if not one.unfinished or not rate:
        return one
    if limits is not None and limits.rate is not None:
        # What was handled before the limit was set may have been faster.
        rate = min(rate, limits.rate[0] / limits.rate[1])
    through_at = now + timedelta(seconds=one.unfinished / rate)
    through_at = max(filter(None, (through_at, last_due_at)))
    return replace(one, through_at=through_at, through_at_least=one.is_capped)


def _rates(connection: Connection, now: datetime) -> Mapping[str, float]:
    """Return how many runs of a handler finished in a second of five minutes, or since a worker was there."""
    at, since = run.c.finished_at, now - RATE_OVER
    seen = (IS_WORKER, worker.c.seen_at > since, worker.c.seen_at <= now)
    started = select(func.min(worker.c.started_at)).where(*seen)
    since = max(since, connection.execute(started).scalar() or since)
    recent = select(run.c.handler, at).where(at > since, at <= now)
    last = recent.order_by(at.desc()).limit(RATE_RUNS).subquery().c
    by_handler = select(last.handler, func.count(), func.min(last.finished_at)).group_by(last.handler)
    rows = connection.execute(by_handler).all()
    all_of_it = sum(number for _, number, _ in rows) < RATE_RUNS
    span = now - (since if all_of_it else min(first for _, _, first in rows))
    return {name: number / max(1.0, span.total_seconds()) for name, number, _ in rows}


@cache
def _numbers() -> TextualSelect:
    """Return the query of how many runs each handler has in which state, and since when some are due."""
    claimable = f"$by_index({words(CLAIMABLE)})"
    kinds = {
        "due": f"{claimable}state = 'due'",
        "running": f"{claimable}state = 'running'",
        "ordered": words(ORDERED_RUN),
        "dead": words(DEAD_RUN),
    }
    states = (
        ("due", "due", "due_at <= :now", _SINCE.format(kinds["due"])),
        ("retrying", "due", "due_at > :now", _LAST.format(kinds["due"])),
        # Of the last of these only: that it is put off is in no index.
        ("put off", "due", "FALSE", _LAST_PUT_OFF.format(kinds["due"])),
        ("running", "running", "queued = 0", "NULL"),
        ("queued", "running", "queued = 1", "NULL"),
        ("waiting", "ordered", "state = 'waiting'", "NULL"),
        ("dead", "dead", "TRUE", "NULL"),
    )
    steps = ", ".join(distinct_values(kind, "handler", "run", of_index) for kind, of_index in kinds.items())
    numbers = " UNION ALL ".join(
        _RUNS_IN_STATE.format(state=state, kind=kind, of_index=kinds[kind], which=which, since=since)
        for state, kind, which, since in states
    )
    query = TextOfTables(f"WITH RECURSIVE {steps} {numbers}").bindparams(bindparam("now", type_=UtcDateTime))
    return query.columns(column("state"), column("handler"), column("number"), column("since", UtcDateTime))


_RUNS_IN_STATE = """SELECT '{state}' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM $run WHERE {of_index} AND run.handler = {kind}.handler AND {which} LIMIT :at_most
    ) AS counted
) AS number, {since} AS since FROM {kind} WHERE handler IS NOT NULL"""
_SINCE = "(SELECT due_at FROM $run WHERE {} AND run.handler = due.handler ORDER BY due_at LIMIT 1)"
_LAST = "(SELECT due_at FROM $run WHERE {} AND run.handler = due.handler ORDER BY due_at DESC LIMIT 1)"
_LAST_PUT_OFF = """(
    SELECT not_before FROM $run WHERE {} AND run.handler = due.handler ORDER BY due_at DESC LIMIT 1
)"""
