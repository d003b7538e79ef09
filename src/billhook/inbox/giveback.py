"""Claims that their own worker does not know of: the answer to its commit was lost, the commit was not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, update

from billhook.inbox.clauses import among, in_state
from billhook.inbox.runs import LEASE
from billhook.inbox.schema import run
from billhook.inbox.states import RunState, check

__all__ = ["release_unknown"]


def release_unknown(
    connection: Connection, owner: str, held: Sequence[tuple[int, int]], now: datetime
) -> int:
    """Give back what the database says `owner` has, but for `held`, as (run id, token); returns how many.

    Due at once, their attempt not counted: nobody called them. `owner` must be one loop's own name, and
    begin no other's.
    """
    check(RunState.RUNNING, RunState.DUE)
    return connection.execute(
        update(run)
        .where(
            in_state(run.c.state, RunState.DUE, RunState.RUNNING),  # as the index has it
            run.c.state == RunState.RUNNING.value,
            run.c.lease_owner.startswith(owner, autoescape=True),
            ~among(LEASE, [f"{run_id}:{token}" for run_id, token in held]),
        )
        .values(state=RunState.DUE.value, due_at=now, attempts=run.c.attempts - 1, lease_owner=None)
    ).rowcount
