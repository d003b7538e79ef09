"""Read what waits for each handler: how many runs in which state, since when, and until when at this rate.

Counted by partial indexes up to a limit, so that it takes some milliseconds however many runs there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, column, select, text

from billhook.inbox.limits import find_paused
from billhook.inbox.schema import handler, run
from billhook.inbox.sql import UtcDateTime

RUNS_LIMIT = 10_000
"""How far the runs of a handler in one state are counted: a number that is as large means "at least"."""
RATE_OVER = timedelta(minutes=5)
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
    """Would be waiting if the handler's rate let them start."""
    retrying: int = 0
    """Due later: they failed, or are replayed at a rate."""
    dead: int = 0
    oldest_due_at: datetime | None = None
    """Since when the one that waits longest could have been handled."""
    through_at: datetime | None = None
    """When all but the dead are handled at the rate of the last five minutes.

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


# In the words of the partial indexes. Each step of a recursion is one look-up for a handler's name.
_CLAIMABLE = "state IN ('due', 'running') AND state = "
_INDEXED = {
    "due": f"{_CLAIMABLE} 'due'",
    "running": f"{_CLAIMABLE} 'running'",
    "waiting": "order_key IS NOT NULL AND state IN ('waiting', 'due', 'running')",
    "dead": "state IN ('dead')",
}
_NAMES = """{kind} (handler) AS (
    SELECT min(handler) FROM run WHERE {indexed} UNION ALL
    SELECT (SELECT min(handler) FROM run WHERE {indexed} AND run.handler > {kind}.handler)
    FROM {kind} WHERE {kind}.handler IS NOT NULL
)"""
_NUMBER = """SELECT '{state}' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM run WHERE {indexed} AND run.handler = {kind}.handler {which} LIMIT :at_most
    ) AS counted
) AS number FROM {kind} WHERE handler IS NOT NULL"""
_WHICH = {
    "waiting": ("waiting", "AND state = 'waiting'"),
    "due": ("due", "AND due_at <= :now"),
    "retrying": ("due", "AND due_at > :now"),
    "running": ("running", ""),
    "dead": ("dead", ""),
}
_OLDEST = """SELECT handler, (
    SELECT due_at FROM run WHERE {indexed} AND run.handler = due.handler ORDER BY due_at LIMIT 1
) AS due_at FROM due WHERE handler IS NOT NULL"""
_NUMBERS = text(
    f"WITH RECURSIVE {', '.join(_NAMES.format(kind=kind, indexed=of) for kind, of in _INDEXED.items())} "
    + " UNION ALL ".join(
        _NUMBER.format(state=state, kind=kind, indexed=_INDEXED[kind], which=which)
        for state, (kind, which) in _WHICH.items()
    )
).bindparams(bindparam("now", type_=UtcDateTime))
_FIRST_DUE = text(
    f"WITH RECURSIVE {_NAMES.format(kind='due', indexed=_INDEXED['due'])} "
    + _OLDEST.format(indexed=_INDEXED["due"])
).columns(column("handler"), column("due_at", UtcDateTime))


def read_handler_backlogs(connection: Connection, now: datetime) -> list[HandlerBacklog]:
    """Return what waits for each handler that has unfinished or dead runs, by name."""
    numbers: Counter[tuple[str, str]] = Counter()
    for state, name, number in connection.execute(_NUMBERS, {"now": now, "at_most": RUNS_LIMIT}):
        numbers[name, state] += number
    paused = {one.name for one in find_paused(connection)}
    starts_later = select(handler.c.name).where(handler.c.next_start_at > now - LIMITED_SINCE)
    limited = set(connection.execute(starts_later).scalars())
    oldest: dict[str, datetime] = {name: at for name, at in connection.execute(_FIRST_DUE) if at <= now}
    rates = _rates(connection, now) if numbers else {}
    found = []
    for name in sorted({name for name, _ in numbers}):
        due, waiting = numbers[name, "due"], numbers[name, "waiting"]
        state = "paused" if name in paused else "limited" if name in limited else "waiting"
        # A run in an order waits for the one before it; if the handler is paused, for that.
        waits = Counter({"paused" if name in paused else "waiting": waiting}) + Counter({state: due})
        one = HandlerBacklog(
            name,
            waits["waiting"],
            numbers[name, "running"],
            waits["paused"],
            waits["limited"],
            numbers[name, "retrying"],
            numbers[name, "dead"],
            oldest.get(name),
            None,
        )
        if one.unfinished and name in rates and name not in paused:
            through_at = now + timedelta(seconds=one.unfinished / rates[name])
            one = replace(one, through_at=through_at)
        found.append(one)
    return found


def _rates(connection: Connection, now: datetime) -> Mapping[str, float]:
    """Return how many runs of each handler finished in a second, of the last five minutes.

    In an inbox that handles more than RUNS_LIMIT runs meanwhile, the last of those tell.
    """
    last = select(run.c.handler, run.c.finished_at).where(
        run.c.finished_at > now - RATE_OVER, run.c.finished_at <= now
    )
    rows = connection.execute(last.order_by(run.c.finished_at.desc()).limit(RUNS_LIMIT)).all()
    span = now - rows[-1].finished_at if len(rows) == RUNS_LIMIT else RATE_OVER
    seconds = max(1.0, span.total_seconds())
    return {name: number / seconds for name, number in Counter(row.handler for row in rows).items()}
