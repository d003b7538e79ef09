"""Group the runs that fail now, dead or waiting for a retry, by handler and error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select

from billhook.inbox.inbox import Inbox
from billhook.inbox.schema import delivery, failure, run
from billhook.inbox.sql import in_states, in_values
from billhook.inbox.states import DeliveryState, RunState

MOST_FAILING = 10_000
"""Of more runs that fail, the newest are grouped."""
_EXAMPLES = 3
_LINE_CHARACTERS = 300
_BATCH = 500
_DEAD = run.c.state == RunState.DEAD.value
_RETRYING = and_(run.c.state == RunState.DUE.value, run.c.attempts > 0)


@dataclass(slots=True)
class FailureGroup:
    """Runs of one handler whose last error begins with the same line.

    `dead` and `retrying` are numbers of runs; `first_at` and `last_at` are times of failed attempts, None if
    none is recorded. `examples` are the ids of the newest deliveries. `id` names the group in an address.
    """

    handler: str
    line: str
    dead: int
    retrying: int
    first_at: datetime | None
    last_at: datetime | None
    examples: list[int]
    run_ids: list[int]

    @property
    def count(self) -> int:
        """How many runs there are."""
        return self.dead + self.retrying

    @property
    def id(self) -> str:
        """A name that fits into an address, for any error; the same in every process."""
        return sha256(f"{self.handler}\0{self.line}".encode("utf-8", "backslashreplace")).hexdigest()[:20]


def failure_groups(inbox: Inbox) -> list[FailureGroup]:
    """Return the groups of failing runs, the largest first. Reads the newest 10,000 of these runs."""
    groups: dict[tuple[str, str], FailureGroup] = {}
    with inbox.database.read() as connection:
        rows = connection.execute(_failing().order_by(run.c.id.desc()).limit(MOST_FAILING)).all()
        for row in rows:
            line = _first_line(row.last_error)
            group = groups.get((row.handler, line))
            if group is None:
                group = groups[row.handler, line] = FailureGroup(row.handler, line, 0, 0, None, None, [], [])
            group.dead += row.state == RunState.DEAD
            group.retrying += row.state != RunState.DEAD
            group.run_ids.append(row.id)
            if len(group.examples) < _EXAMPLES:
                group.examples.append(row.delivery_id)
        times = select(failure.c.run_id, func.min(failure.c.failed_at), func.max(failure.c.failed_at))
        of_these = times.where(in_values(failure.c.run_id, [row.id for row in rows]))
        spans = {row[0]: row[1:] for row in connection.execute(of_these.group_by(failure.c.run_id))}
    for group in groups.values():
        known = [spans[run_id] for run_id in group.run_ids if run_id in spans]
        group.first_at = min((first for first, _ in known), default=None)
        group.last_at = max((last for _, last in known), default=None)
    return sorted(groups.values(), key=lambda group: (-group.count, group.handler, group.line))


def failing_delivery_ids(inbox: Inbox, handler: str, line: str) -> Iterator[list[int]]:
    """Yield the ids of deliveries with a failing run of this handler and this first line, oldest first."""
    after = 0
    while True:
        query = _failing(run.c.handler == handler, run.c.id > after).order_by(run.c.id).limit(_BATCH)
        with inbox.database.read() as connection:
            rows = connection.execute(query).all()
        # Compared here: the databases differ in how they compare upper and lower case.
        found = [row.delivery_id for row in rows if _first_line(row.last_error) == line]
        if found:
            yield found
        if len(rows) < _BATCH:
            return
        after = rows[-1].id


def _failing(*conditions: ColumnElement[bool]) -> Select[Any]:
    columns = (run.c.id, run.c.delivery_id, run.c.handler, run.c.state, run.c.last_error)
    # By the states of deliveries, which have indexes: most runs succeeded long ago.
    unfinished = in_states(delivery.c.state, DeliveryState.DEAD, DeliveryState.PLANNED)
    joined = select(*columns).join(delivery, delivery.c.id == run.c.delivery_id)
    return joined.where(unfinished, or_(_DEAD, _RETRYING), *conditions)


def _first_line(error: str | None) -> str:
    return (error or "").split("\n", 1)[0].strip()[:_LINE_CHARACTERS]
