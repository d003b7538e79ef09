"""Read what waits for each handler: how many runs in which state, since when, and until when at this rate.

Counted by partial indexes up to a limit, so that it takes some milliseconds however many runs there are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection, TextualSelect, bindparam, column, func, select, text

from billhook.inbox.limits import find_paused
from billhook.inbox.pending import names_at_limit
from billhook.inbox.records import HandlerLimits
from billhook.inbox.schema import handler, run
from billhook.inbox.sql import UtcDateTime, distinct_values

RUNS_LIMIT = 10_000
"""How far the runs of a handler in one state are counted: a number that is as large means "at least"."""
RATE_OVER = timedelta(minutes=5)
RATE_RUNS = 5_000
"""In an inbox that handles more runs in that time, the last of them tell the rate."""
LIMITED_SINCE = timedelta(seconds=5)
"""A handler is limited now if its rate let no run start at some time since then."""


@dataclass(frozen=True, slots=True)
class HandlerBacklog:
    """The unfinished and dead runs of one handler. Numbers are exact below RUNS_LIMIT."""

    name: str
    waiting: int = 0
    """Due, or waiting for their place in an order."""
    running: int = 0
    paused: int = 0
    """Would be waiting if the handler were not paused."""
    limited: int = 0
    """Would be waiting if the handler's rate or number of runs at once let them start."""
    retrying: int = 0
    """Due later: they failed, or are replayed at a rate."""
    dead: int = 0
    oldest_due_at: datetime | None = None
    """Since when the one that waits longest could have been handled."""
    per_second: float = 0.0
    """How many were handled in a second of the last five minutes."""
    through_at: datetime | None = None
    """When all but the dead are handled at that rate.

    None for a handler that is paused, and if none was handled.
    """

    @property
    def states(self) -> dict[str, int]:
        """The number of runs in each state."""
        names = ("waiting", "running", "paused", "limited", "retrying", "dead")
        return {name: getattr(self, name) for name in names}

    @property
    def unfinished(self) -> int:
        """All but the dead."""
        return sum(self.states.values()) - self.dead


def read_handler_backlogs(
    connection: Connection, now: datetime, limits: Mapping[str, HandlerLimits]
) -> list[HandlerBacklog]:
    """Return what waits for each handler that has unfinished or dead runs, by name.

    `limits` are by the names that runs are stored under. Where handlers are not loaded there are none: then a
    handler with as many runs under way as it may have is not known as limited, nor a former name as paused.
    """
    numbers: Counter[tuple[str, str]] = Counter()
    oldest: dict[str, datetime] = {}
    found = connection.execute(_numbers(connection.dialect.name), {"now": now, "at_most": RUNS_LIMIT})
    for state, name, number, since in found:
        numbers[name, state] = number
        if since is not None and since <= now:
            oldest[name] = since
    names = sorted({name for name, _ in +numbers})
    own_names = {name: limits[name].name if name in limits else name for name in names}
    paused = {limits[one.name].name if one.name in limits else one.name for one in find_paused(connection)}
    starts_later = select(handler.c.name).where(handler.c.next_start_at > now - LIMITED_SINCE)
    limited = {*connection.execute(starts_later).scalars(), *names_at_limit(connection, limits, names)}
    rates = _rates(connection, now) if names else {}
    backlogs = []
    for name, own_name in own_names.items():
        states: defaultdict[str, Any] = defaultdict(int)
        states |= {state: numbers[name, state] for state in ("running", "retrying", "dead")}
        # A run in an order waits for the one before it; if the handler is paused, for that.
        states["paused" if own_name in paused else "waiting"] += numbers[name, "waiting"]
        due = "paused" if own_name in paused else "limited" if own_name in limited else "waiting"
        states[due] += numbers[name, "due"]
        rate = rates.get(name, 0.0)
        one = HandlerBacklog(name, **states, oldest_due_at=oldest.get(name), per_second=rate)
        if one.unfinished and rate and own_name not in paused:
            one = replace(one, through_at=now + timedelta(seconds=one.unfinished / rate))
        backlogs.append(one)
    return backlogs


def _rates(connection: Connection, now: datetime) -> Mapping[str, float]:
    """Return how many runs of each handler finished in a second, of the last five minutes."""
    at = run.c.finished_at
    recent = select(run.c.handler, at).where(at > now - RATE_OVER, at <= now)
    last = recent.order_by(at.desc()).limit(RATE_RUNS).subquery().c
    by_handler = select(last.handler, func.count(), func.min(last.finished_at)).group_by(last.handler)
    rows = connection.execute(by_handler).all()
    all_of_it = sum(number for _, number, _ in rows) < RATE_RUNS
    span = RATE_OVER if all_of_it else now - min(first for _, _, first in rows)
    return {name: number / max(1.0, span.total_seconds()) for name, number, _ in rows}


@cache
def _numbers(dialect: str) -> TextualSelect:
    """Return the query of how many runs each handler has in which state, and since when some are due."""
    # As in billhook.inbox.pending: PostgreSQL takes the two conditions for a rare coincidence, and would read
    # all runs.
    claimable = "state IN ('due', 'running') AND " if dialect == "sqlite" else ""
    kinds = {
        "due": f"{claimable}state = 'due'",
        "running": f"{claimable}state = 'running'",
        "ordered": "order_key IS NOT NULL AND state IN ('waiting', 'due', 'running')",
        "dead": "state IN ('dead')",
    }
    states = (
        ("due", "due", "due_at <= :now", _SINCE.format(kinds["due"])),
        ("retrying", "due", "due_at > :now", "NULL"),
        ("running", "running", "TRUE", "NULL"),
        ("waiting", "ordered", "state = 'waiting'", "NULL"),
        ("dead", "dead", "TRUE", "NULL"),
    )
    steps = ", ".join(distinct_values(kind, "handler", "run", of_index) for kind, of_index in kinds.items())
    numbers = " UNION ALL ".join(
        _NUMBER.format(state=state, kind=kind, of_index=kinds[kind], which=which, since=since)
        for state, kind, which, since in states
    )
    query = text(f"WITH RECURSIVE {steps} {numbers}").bindparams(bindparam("now", type_=UtcDateTime))
    return query.columns(column("state"), column("handler"), column("number"), column("since", UtcDateTime))


_NUMBER = """SELECT '{state}' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM run WHERE {of_index} AND run.handler = {kind}.handler AND {which} LIMIT :at_most
    ) AS counted
) AS number, {since} AS since FROM {kind} WHERE handler IS NOT NULL"""
_SINCE = "(SELECT due_at FROM run WHERE {} AND run.handler = due.handler ORDER BY due_at LIMIT 1)"
