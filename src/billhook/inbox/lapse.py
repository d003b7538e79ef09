"""Leases that have ended: whoever held them died, or was silent for too long. Who may have killed it?

What was only queued there was not called, and is due again as before. What was begun is a suspect: it is
due again alone (see billhook.engines.suspects). Was it begun alone already, it was the cause: the attempt
counts, and so does the one that made it a suspect. Beside others it was one of several, and is excused; so is
a suspect that took long and was joined by others, up to a limit, for it may be the one that kills late.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, insert, select, update

from billhook.inbox.clauses import among, in_state
from billhook.inbox.schema import failure, run
from billhook.inbox.states import RunState, check

__all__ = ["JOINED", "LOST", "LOST_IN_QUEUE", "LOST_JOINED", "QUEUED", "lapse"]

LOST = "the worker died, or was silent for longer than its lease"
QUEUED = " queued"
"""Behind its owner's name: a claim that waits there for a thread."""
LOST_IN_QUEUE = "lost queued"
"""In place of an owner, of a run that is due: it is not to be queued again, where it would never count."""
JOINED = " joined"
"""Behind its owner's name: a suspect that is not alone any more, for it takes longer than others wait."""
LOST_JOINED = "lost joined"
"""In place of an owner, of a suspect that is due: it is begun after others, which say sooner how they end."""
_LIMIT = 500
_MOST_JOINED = 8
"""A suspect that was excused so often is what those losses have in common."""


def lapse(connection: Connection, now: datetime, *, only: int | None, spread: timedelta) -> None:
    """Make runs due whose lease has ended, up to 500, of one delivery if `only` names it.

    Suspects at a moment of their own within `spread`: those that died together shall not meet again.
    """
    query = select(run.c.id, run.c.attempts, run.c.lease_owner, run.c.alone, run.c.excused).where(
        in_state(run.c.state, RunState.DUE, RunState.RUNNING),  # as the index has it
        run.c.state == RunState.RUNNING.value,
        run.c.due_at <= now,
    )
    if only is not None:
        query = query.where(run.c.delivery_id == only)
    query = query.order_by(run.c.due_at, run.c.id).limit(_LIMIT).with_for_update(skip_locked=True)
    rows = connection.execute(query).all()
    check(RunState.RUNNING, RunState.DUE)
    queued = [row.id for row in rows if (row.lease_owner or "").endswith(QUEUED)]
    _make_due(connection, queued, now, {"attempts": run.c.attempts - 1, "lease_owner": LOST_IN_QUEUE})
    begun = [row for row in rows if row.id not in set(queued)]
    for row in begun:
        due_at = now + spread * random.random()  # noqa: S311 - not for secrecy
        joined = (row.lease_owner or "").endswith(JOINED)
        values = {"alone": 1, "excused": _excused(row, joined), "last_error": LOST}
        _make_due(connection, [row.id], due_at, {**values, "lease_owner": LOST_JOINED if joined else None})
    _note(connection, begun, now)


def _excused(row: Any, joined: bool) -> int:
    """How many attempts of a run are excused, after one that was lost."""
    excused: int = row.excused
    if not row.alone:
        return excused + 1
    if joined:
        return max(excused, min(excused + 1, _MOST_JOINED))
    return max(0, excused - 1)


def _make_due(connection: Connection, ids: list[int], due_at: datetime, values: dict[str, Any]) -> None:
    if ids:
        connection.execute(
            update(run).where(among(run.c.id, ids)).values(state=RunState.DUE.value, due_at=due_at, **values)
        )


def _note(connection: Connection, lost: Sequence[Any], now: datetime) -> None:
    """Attempts of which nobody will say how they ended."""
    if lost:
        facts = {"failed_at": now, "error": LOST}
        connection.execute(
            insert(failure), [{"run_id": row.id, "attempt": row.attempts, **facts} for row in lost]
        )
