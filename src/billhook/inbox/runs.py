"""The life of runs in a transaction: claim, renew, release. Each UPDATE names the state before.

A run that waits for its turn is none of this module's business: see billhook.inbox.ordering.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Text, and_, case, cast, insert, select, update

from billhook.inbox.clauses import among, in_state
from billhook.inbox.records import Claim, Stored
from billhook.inbox.schema import delivery, failure, run
from billhook.inbox.states import DeliveryState, RunState, check

__all__ = ["CLAIMABLE", "LEASE", "STORED", "claim", "holds", "next_due_at", "received", "release", "renew"]

STORED = (
    delivery.c.id,
    delivery.c.source,
    delivery.c.key,
    delivery.c.event_type,
    delivery.c.body,
    delivery.c.headers,
    delivery.c.signed_at,
    delivery.c.received_at,
)
_CLAIMED = (
    run.c.id.label("run_id"),
    run.c.token,
    run.c.handler,
    run.c.attempts,
    run.c.state,
    run.c.lease_owner,
    run.c.delivery_id,
    run.c.due_at,
)
_QUEUED = " queued"
_COUNTS = case((and_(run.c.state == RunState.RUNNING.value, run.c.lease_owner.endswith(_QUEUED)), 0), else_=1)
# And may be claimed when its time comes: one that waits for its turn is in no claim's way.
CLAIMABLE = in_state(run.c.state, RunState.DUE, RunState.RUNNING)
LEASE = cast(run.c.id, Text).concat(":").concat(cast(run.c.token, Text))
"""A run's id and token as one text: see billhook.inbox.clauses."""


def received(connection: Connection, limit: int, only: int | None = None) -> list[Stored]:
    """Deliveries that wait to be planned, oldest first."""
    query = select(*STORED).where(in_state(delivery.c.state, DeliveryState.RECEIVED))
    if only is not None:
        query = query.where(delivery.c.id == only)
    return [Stored(*row) for row in connection.execute(query.order_by(delivery.c.id).limit(limit))]


def claim(
    connection: Connection,
    *,
    owner: str,
    limit: int,
    idle: int,
    now: datetime,
    leased_until: datetime,
    only: int | None = None,
) -> list[Claim]:
    """Take up to `limit` runs whose time has come, their attempt counted before anyone calls them.

    One column tells who may claim: `due_at` is the retry time of a due run and the lease's end of a
    running one, so a dead worker's runs are due again. Only the first `idle` are begun at once; the others
    are marked as queued, and if their worker dies that is no attempt of theirs.
    """
    query = select(*_CLAIMED).where(CLAIMABLE, run.c.due_at <= now)
    if only is not None:
        query = query.where(run.c.delivery_id == only)
    # First the few runs, by the index alone and as they are once they are locked; then what belongs to them.
    few = query.order_by(run.c.due_at, run.c.id).limit(limit).with_for_update(skip_locked=True).cte("few")
    rows = connection.execute(
        select(few, *STORED)
        .join(delivery, delivery.c.id == few.c.delivery_id)
        .order_by(few.c.due_at, few.c.run_id)
    ).all()
    lost = [row for row in rows if row.state == RunState.RUNNING]
    if lost and not idle:
        return []  # what may have killed its worker is begun at once, or left until it can be
    chosen = (lost[:idle] + [row for row in rows if row.state != RunState.RUNNING])[:limit]
    _note_lost(connection, [row for row in lost[:idle] if _counts(row)], now)
    for part, mark in ((chosen[:idle], ""), (chosen[idle:], _QUEUED)):
        if part:
            connection.execute(
                update(run)
                .where(among(run.c.id, [row.run_id for row in part]))
                .values(
                    state=RunState.RUNNING.value,
                    attempts=run.c.attempts + _COUNTS,
                    token=run.c.token + 1,
                    due_at=leased_until,
                    lease_owner=owner + mark,
                )
            )
    return [_claim(row, leased_until) for row in chosen]


def _counts(row: Any) -> bool:
    """Whether the claim before this one, if it was lost, was an attempt; _COUNTS says the same in SQL."""
    return not (row.state == RunState.RUNNING and (row.lease_owner or "").endswith(_QUEUED))


def _claim(row: Any, leased_until: datetime) -> Claim:
    stored = Stored(*tuple(row)[len(_CLAIMED) :])
    return Claim(row.run_id, row.token + 1, row.handler, row.attempts + _counts(row), leased_until, stored)


def _note_lost(connection: Connection, lost: list[Any], now: datetime) -> None:
    """Attempts of which nobody will say how they ended."""
    if lost:
        error = "the worker died, or was silent for longer than its lease"
        facts = {"failed_at": now, "error": error}
        connection.execute(
            insert(failure), [{"run_id": row.run_id, "attempt": row.attempts, **facts} for row in lost]
        )


def renew(
    connection: Connection, held: Sequence[tuple[int, int]], leased_until: datetime
) -> set[tuple[int, int]]:
    """Extend the leases of (run id, token) pairs; returns those that are still held."""
    if not held:
        return set()
    rows = connection.execute(
        update(run).where(holds(held)).values(due_at=leased_until).returning(run.c.id, run.c.token)
    )
    return {(run_id, token) for run_id, token in rows}


def release(connection: Connection, held: Sequence[tuple[int, int]], now: datetime) -> None:
    """Give back runs that were claimed and never called: due at once, their attempt not counted."""
    if held:
        check(RunState.RUNNING, RunState.DUE)
        connection.execute(
            update(run)
            .where(holds(held))
            .values(state=RunState.DUE.value, due_at=now, attempts=run.c.attempts - 1, lease_owner=None)
        )


def next_due_at(connection: Connection) -> datetime | None:
    """When the next run may be claimed; None when none is unfinished."""
    return connection.execute(
        select(run.c.due_at).where(CLAIMABLE).order_by(run.c.due_at).limit(1)
    ).scalar_one_or_none()


def holds(held: Sequence[tuple[int, int]]) -> ColumnElement[bool]:
    """Those of the (run id, token) pairs whose lease still holds."""
    return and_(
        among(run.c.id, [run_id for run_id, _ in held]),  # by the index; then by the pair
        among(LEASE, [f"{run_id}:{token}" for run_id, token in held]),
        run.c.state == RunState.RUNNING.value,
    )
