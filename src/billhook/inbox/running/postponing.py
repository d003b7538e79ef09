"""Runs that are not to be called before a time, which an operator or their handler has said.

`due_at` alone says when a run may be claimed, so that every claim and poll reads one index. `not_before` is
the earliest time that what makes a run due may write there: the run before it in an order, the reset of
times that are too far, the late result of an attempt that was taken for lost. A claim clears it: the time has
come then, and what becomes of that attempt, be it that its worker dies, is due by its own rules.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, literal, or_, update

from billhook.inbox.tables.schema import run
from billhook.inbox.tables.sql import in_states, in_values
from billhook.inbox.tables.states import RunState

LONGEST_POSTPONEMENT = timedelta(days=31)
"""How far ahead the time may be: half of what `reset_far_due_times` takes for the mistake of a clock."""
MOST_POSTPONEMENTS = 30
"""How often the handler of a run may put it off; then it fails like any other."""


def not_earlier(at: datetime | ColumnElement[Any]) -> ColumnElement[Any]:
    """Return a time as the due time of a run: not before its `not_before`."""
    moment = literal(at, run.c.due_at.type) if isinstance(at, datetime) else at
    return case((run.c.not_before > moment, run.c.not_before), else_=moment)


def put_off(until: datetime) -> dict[str, Any]:
    """Return the values of a due or waiting run that is not to be called before a time.

    A due run that is retried later than that stays so, unless its due time is that of another postponement.
    """
    moment = literal(until, run.c.due_at.type)
    is_later = and_(run.c.due_at > moment, or_(run.c.not_before.is_(None), run.c.due_at > run.c.not_before))
    return {"not_before": until, "due_at": case((is_later, run.c.due_at), else_=moment)}


def put_off_runs(connection: Connection, ids: Collection[int], until: datetime, **values: Any) -> None:
    """Have those of these runs that are due or wait not called before a time; `values` are set as well."""
    mine = (in_values(run.c.id, ids), in_states(run.c.state, RunState.DUE, RunState.WAITING))
    connection.execute(update(run).where(*mine).values({**put_off(until), **values}))
