"""Renew, release and expire leases. A lease expires when its worker died or was silent for too long.

What becomes of the run depends on what it was doing:

- A run that was only queued was never called. It is due again, and its attempt does not count.
- A run that had been started becomes a suspect: it may have killed its worker, so it is claimed alone from
  then on (see billhook.engines.suspects).
- A suspect that was running alone was the cause: this attempt counts, and so does the one before it.
- A suspect that was not alone any more, because it took long, is excused again, up to a limit: it may be
  the one that kills late.

Runs that wait in their order have no lease: see billhook.inbox.runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Text, and_, bindparam, cast, insert, select, update

from billhook.inbox.fingerprint import fingerprint
from billhook.inbox.pending import CLAIMABLE, SUSPECT
from billhook.inbox.records import Lease
from billhook.inbox.schema import failure, run
from billhook.inbox.sql import UtcDateTime, in_parameter, in_values
from billhook.inbox.states import RunState

FARTHEST = timedelta(days=62)
"""The longest wait between attempts with the longest jitter; no lease is longer."""
LOST = "the worker died, or was silent for longer than its lease"
QUEUED = " queued"
"""Suffix of the lease owner: the claim waits in the worker's queue for a thread."""
LOST_IN_QUEUE = "lost queued"
"""Owner of a due run that was lost in a queue: it is not queued again, where it would never count."""
NOT_ALONE = " joined"
"""Suffix of the lease owner: a suspect that is not alone any more, because it takes long. It is stored."""
LOST_NOT_ALONE = "lost joined"
"""Owner of a due suspect that was lost beside other runs: it is claimed after those, which settle sooner."""
_EXPIRE_LIMIT = 500
_MAX_EXCUSED = 8
"""A suspect that was excused this often is the likely cause of those losses: from then on they count."""
# Id and token as one text: SQLite walks the whole table for a list of pairs (see billhook.inbox.sql).
_LEASE_TEXT = cast(run.c.id, Text).concat(":").concat(cast(run.c.token, Text))
_HELD = and_(
    in_parameter(run.c.id, "run_ids"),  # finds the rows by their index
    in_parameter(_LEASE_TEXT, "leases"),  # then compares the tokens
    run.c.state == RunState.RUNNING.value,
)
"""The condition that a run is one of those in `_lease_parameters`, and its lease still holds."""
_RELEASED: dict[str, Any] = {
    "state": RunState.DUE.value,
    "due_at": bindparam("now", type_=UtcDateTime),
    "attempts": run.c.attempts - 1,
    "lease_owner": None,
}


def _lease_parameters(leases: Iterable[Lease]) -> dict[str, list[Any]]:
    """Return the parameters of _HELD for these leases."""
    pairs = list(leases)
    return {
        "run_ids": [run_id for run_id, _ in pairs],
        "leases": [f"{run_id}:{token}" for run_id, token in pairs],
    }


def mark_not_alone(connection: Connection, held: Iterable[Lease]) -> None:
    """Mark running suspects as not alone any more: other runs are started beside them."""
    suspects = select(run.c.id).where(_HELD, run.c.runs_alone == 1, ~run.c.lease_owner.endswith(NOT_ALONE))
    # Skipped, not waited for: a row that another transaction locks has its lease expired there, and that
    # transaction may wait for a lock of this one.
    query = suspects.with_for_update(skip_locked=True)
    run_ids = list(connection.execute(query, _lease_parameters(held)).scalars())
    marking = update(run).where(in_values(run.c.id, run_ids))
    connection.execute(marking.values(lease_owner=run.c.lease_owner + NOT_ALONE))


def renew(connection: Connection, held: Iterable[Lease], leased_until: datetime) -> set[Lease]:
    """Extend leases; returns those that are still held."""
    # A lease that ran out is renewed too while no other worker has claimed the run: the token decides.
    extended = update(run).where(_HELD).values(due_at=leased_until).returning(run.c.id, run.c.token)
    return set(map(Lease._make, connection.execute(extended, _lease_parameters(held))))


def release(connection: Connection, held: Iterable[Lease], now: datetime) -> None:
    """Release claimed runs that were never called: due at once, their attempt not counted."""
    connection.execute(update(run).where(_HELD).values(_RELEASED), {**_lease_parameters(held), "now": now})


def release_orphaned(connection: Connection, owner: str, held: Iterable[Lease], now: datetime) -> int:
    """Release the owner's claims beside `held`; returns how many there were."""
    orphaned = (
        update(run)
        .where(
            CLAIMABLE,  # so that the partial index applies
            run.c.state == RunState.RUNNING.value,
            # A prefix: queued runs, and suspects that are not alone, have the owner's name with a suffix.
            run.c.lease_owner.startswith(owner, autoescape=True),
            ~in_parameter(_LEASE_TEXT, "leases"),
        )
        .values(_RELEASED)
    )
    leases = _lease_parameters(held)["leases"]
    return connection.execute(orphaned, {"leases": leases, "now": now}).rowcount


# --- expired leases -----------------------------------------------------------------------------------


def expire_leases(connection: Connection, now: datetime, *, only: int | None, spread: timedelta) -> set[str]:
    """Make runs due whose lease ran out, a few hundred at a time, of one delivery if `only` names it.

    Returns the handlers of those runs.

    Each suspect becomes due at a random moment within `spread`: runs that died together shall not meet again.
    """
    query = select(
        run.c.id, run.c.handler, run.c.attempts, run.c.lease_owner, run.c.runs_alone, run.c.excused_attempts
    ).where(
        CLAIMABLE,  # so that the partial index applies
        run.c.state == RunState.RUNNING.value,
        run.c.due_at <= now,
    )
    if only is not None:
        query = query.where(run.c.delivery_id == only)
    # Skipped: a row that is locked is being settled, renewed or expired by another worker.
    query = query.order_by(run.c.due_at, run.c.id).limit(_EXPIRE_LIMIT).with_for_update(skip_locked=True)
    rows = connection.execute(query).all()
    queued = [row.id for row in rows if (row.lease_owner or "").endswith(QUEUED)]
    _make_due(connection, queued, now, {"attempts": run.c.attempts - 1, "lease_owner": LOST_IN_QUEUE})
    started = [row for row in rows if row.id not in set(queued)]
    for row in started:
        due_at = now + spread * random.random()  # noqa: S311 - not for secrecy
        not_alone = (row.lease_owner or "").endswith(NOT_ALONE)
        values = {"runs_alone": 1, "excused_attempts": _excused(row, not_alone), "last_error": LOST}
        # The token stays: the next claim raises it, and a late result meets no row in state running.
        _make_due(
            connection, [row.id], due_at, {**values, "lease_owner": LOST_NOT_ALONE if not_alone else None}
        )
    if started:
        lost = [
            {
                "run_id": row.id,
                "attempt": row.attempts,
                "failed_at": now,
                "error": LOST,
                "fingerprint": fingerprint(row.handler, LOST),
            }
            for row in started
        ]
        connection.execute(insert(failure), lost)
    return {row.handler for row in rows}


def _excused(row: Any, not_alone: bool) -> int:
    """Return how many attempts of a run are excused after one that was lost."""
    excused: int = row.excused_attempts
    if not row.runs_alone:
        return excused + 1
    if not_alone:
        return max(excused, min(excused + 1, _MAX_EXCUSED))
    # It ran alone and was lost: the attempt before it, excused until now, is its own doing too.
    return max(0, excused - 1)


def _make_due(connection: Connection, ids: list[int], due_at: datetime, values: dict[str, Any]) -> None:
    if ids:
        due = {"state": RunState.DUE.value, "due_at": due_at}
        connection.execute(update(run).where(in_values(run.c.id, ids)).values({**due, **values}))


def reset_far_due_times(connection: Connection, names: Iterable[str], now: datetime) -> None:
    """Make due what is due later than any wait may take: it was written when the clock was ahead.

    Runs of the handlers of these names, which the index finds, and suspects.
    """
    # Not leases: this worker's own clock may be the one that is wrong.
    due = [and_(CLAIMABLE, run.c.state == RunState.DUE.value, run.c.handler == name) for name in names]
    for which in (*due, SUSPECT):
        far = select(run.c.id).where(which, run.c.due_at > now + FARTHEST)
        # Rows that another worker has locked are reset by it, or the next time.
        found = far.with_for_update(skip_locked=True)
        connection.execute(update(run).where(run.c.id.in_(found)).values(due_at=now))
