"""Leases: the time-limited right to a run, and what becomes of a run when its lease expires.

A lease expires when its worker died or was silent for too long. What becomes of the run depends on what it
was doing:

- A run that was only queued was never called. It is due again, and its attempt does not count.
- A run that had been started becomes a suspect: it may have killed its worker, so it is claimed alone from
  then on (see billhook.engines.suspects).
- A suspect that was running alone was the cause: this attempt counts, and so does the one before it.
- Of a suspect that was not alone any more, because it took long, the attempt does not count either, up to a
  limit: it may be the one that kills late.

A worker whose process stood still may be late itself: leases of its own process it renews and never expires.
Until the run is claimed again, the result of the late attempt is still the run's result.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Text, and_, cast, insert, literal_column, or_, select, update

from billhook.inbox.tables.records import Lease, fingerprint
from billhook.inbox.tables.schema import RUNNING_RUN, failure, run
from billhook.inbox.tables.sql import in_parameter, in_states, in_values
from billhook.inbox.tables.states import RunState

LOST = "the worker died, or was silent for longer than BILLHOOK_LEASE_SECONDS"
NOT_CLAIMED: dict[str, Any] = {"queued": 0, "beside_others": 0}
"""The columns that a claim sets, as they are without a claim; a run whose lease has expired keeps them."""
_EXPIRED_COLUMNS = (
    *(run.c.id, run.c.handler, run.c.attempts, run.c.worker, run.c.release_id),
    *(run.c.queued, run.c.runs_alone, run.c.beside_others, run.c.uncounted_attempts, run.c.postponements),
)
_EXPIRE_LIMIT = 500
_MAX_UNCOUNTED = 8
"""With as many attempts that do not count a suspect is the likely cause: from then on they count."""
# Id and token as one text: SQLite walks the whole table for a list of pairs (see billhook.inbox.tables.sql).
LEASE = cast(run.c.id, Text).concat(":").concat(cast(run.c.token, Text))
"""The lease of a run's last claim."""
HELD = and_(
    in_parameter(run.c.id, "run_ids"),  # finds the rows by their index
    in_parameter(LEASE, "leases"),  # then compares the tokens
    run.c.state == RunState.RUNNING.value,
)
"""The condition that a run is one of those in `lease_parameters`, and its lease still holds."""
UNSETTLED = or_(
    in_states(run.c.state, RunState.RUNNING),
    and_(
        in_states(run.c.state, RunState.DUE),
        or_(run.c.runs_alone == literal_column("1"), run.c.queued == literal_column("1")),
    ),
)
"""The last claim of a run has no result yet: it is running, or its lease has expired and it is due again."""


def lease_texts(leases: Iterable[Lease]) -> list[str]:
    """Return leases as LEASE has them."""
    return [f"{run_id}:{token}" for run_id, token in leases]


def lease_parameters(leases: Iterable[Lease]) -> dict[str, list[Any]]:
    """Return the parameters of HELD for these leases."""
    pairs = list(leases)
    return {"run_ids": [run_id for run_id, _ in pairs], "leases": lease_texts(pairs)}


def expire_leases(
    connection: Connection,
    now: datetime,
    *,
    only: int | None,
    spread: timedelta,
    held: Collection[Lease] = (),
) -> set[str]:
    """Make runs due whose lease ran out, a few hundred at a time, of one delivery if `only` names it.

    Returns the handlers of those runs. `held` are the leases of this process: it knows that they are alive,
    however late their renewal is.

    Each suspect becomes due at a random moment within `spread`: runs that died together shall not meet again.
    """
    query = select(*_EXPIRED_COLUMNS).where(
        RUNNING_RUN,
        run.c.due_at <= now,
    )
    if only is not None:
        query = query.where(run.c.delivery_id == only)
    if held:
        query = query.where(~in_values(LEASE, lease_texts(held)))
    # Skipped: a row that is locked is being settled, renewed or expired by another worker.
    query = query.order_by(run.c.due_at, run.c.id).limit(_EXPIRE_LIMIT).with_for_update(skip_locked=True)
    rows = connection.execute(query).all()
    queued = [row.id for row in rows if row.queued]
    _make_due(connection, queued, now, {"attempts": run.c.attempts - 1})
    started = [row for row in rows if not row.queued]
    for row in started:
        due_at = now + spread * random.random()  # noqa: S311 - not for secrecy
        values = {"runs_alone": 1, "uncounted_attempts": _uncounted(row), "last_error": LOST}
        # The token stays: the next claim raises it, and until then a late result is the run's result.
        _make_due(connection, [row.id], due_at, values)
    if started:
        lost = [
            {
                "run_id": row.id,
                "attempt": row.attempts,
                "failed_at": now,
                "error": LOST,
                # Only an attempt that counts killed its worker, and is an issue.
                "fingerprint": fingerprint(row.handler, LOST)
                if row.runs_alone and _uncounted(row) <= row.uncounted_attempts
                else None,
                "worker": row.worker,
                "release_id": row.release_id,
            }
            for row in started
        ]
        connection.execute(insert(failure), lost)
    return {row.handler for row in rows}


def _uncounted(row: Any) -> int:
    """Return how many attempts of a run do not count after one that was lost."""
    put_off: int = row.postponements
    lost: int = row.uncounted_attempts - put_off
    if not row.runs_alone:
        return put_off + lost + 1
    if row.beside_others:
        return put_off + max(lost, min(lost + 1, _MAX_UNCOUNTED))
    # It ran alone and was lost: the attempt before it, not counted until now, is its own doing too.
    return put_off + max(0, lost - 1)


def _make_due(connection: Connection, ids: list[int], due_at: datetime, values: dict[str, Any]) -> None:
    if ids:
        due = {"state": RunState.DUE.value, "due_at": due_at}
        connection.execute(update(run).where(in_values(run.c.id, ids)).values({**due, **values}))
