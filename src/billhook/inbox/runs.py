"""The life of runs in a transaction: plan, claim, renew, release. Each UPDATE names the state before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby

from sqlalchemy import ColumnElement, Connection, and_, insert, select, tuple_, update

from billhook.inbox.records import Claim, Plan, Stored
from billhook.inbox.schema import delivery, failure, run
from billhook.inbox.states import DeliveryState, RunState, check

__all__ = ["UNFINISHED", "claim", "holds", "next_due_at", "plan", "received", "release", "renew"]

_STORED = (
    delivery.c.id,
    delivery.c.source,
    delivery.c.key,
    delivery.c.event_type,
    delivery.c.body,
    delivery.c.headers,
    delivery.c.signed_at,
    delivery.c.received_at,
)
UNFINISHED = run.c.state.in_((RunState.DUE.value, RunState.RUNNING.value))


def received(connection: Connection, limit: int, only: int | None = None) -> list[Stored]:
    """Deliveries that wait to be planned, oldest first."""
    query = select(*_STORED).where(delivery.c.state == DeliveryState.RECEIVED.value)
    if only is not None:
        query = query.where(delivery.c.id == only)
    return [Stored(*row) for row in connection.execute(query.order_by(delivery.c.id).limit(limit))]


def plan(connection: Connection, plans: Sequence[Plan], now: datetime) -> list[int]:
    """Make the runs of received deliveries; returns those that nobody else planned meanwhile."""
    if not plans:
        return []
    won: set[int] = set()
    for state, group in groupby(sorted(plans, key=_planned_state), key=_planned_state):
        check(DeliveryState.RECEIVED, state)
        for error, same in groupby(sorted(group, key=lambda p: p.error or ""), key=lambda p: p.error):
            won.update(_advance(connection, [p.delivery_id for p in same], state, error))
    rows = [
        {
            "delivery_id": planned.delivery_id,
            "handler": handler,
            "state": RunState.DUE.value,
            "attempts": 0,
            "due_at": now,
            "token": 0,
        }
        for planned in plans
        if planned.delivery_id in won
        for handler in planned.handlers
    ]
    if rows:
        connection.execute(insert(run), rows)
    return [planned.delivery_id for planned in plans if planned.delivery_id in won]


def _planned_state(planned: Plan) -> DeliveryState:
    if planned.error is not None:
        return DeliveryState.QUARANTINED
    return DeliveryState.PLANNED if planned.handlers else DeliveryState.DONE


def _advance(
    connection: Connection, delivery_ids: list[int], state: DeliveryState, error: str | None
) -> Iterable[int]:
    return connection.execute(
        update(delivery)
        .where(delivery.c.id.in_(delivery_ids), delivery.c.state == DeliveryState.RECEIVED.value)
        .values(state=state.value, error=error)
        .returning(delivery.c.id)
    ).scalars()


def claim(
    connection: Connection,
    *,
    owner: str,
    limit: int,
    now: datetime,
    leased_until: datetime,
    only: int | None = None,
) -> list[Claim]:
    """Take up to `limit` runs whose time has come, their attempt counted before anyone calls them.

    One column tells who may claim: `due_at` is the retry time of a due run and the lease's end of a
    running one, so a worker that died is noticed by its runs being due again.
    """
    due = (
        select(run.c.id, run.c.token, run.c.handler, run.c.attempts, run.c.state, *_STORED)
        .join(delivery, delivery.c.id == run.c.delivery_id)
        .where(UNFINISHED, run.c.due_at <= now)
        .order_by(run.c.due_at, run.c.id)
        .limit(limit)
        .with_for_update(of=run, skip_locked=True)
    )
    if only is not None:
        due = due.where(run.c.delivery_id == only)
    rows = connection.execute(due).all()
    if not rows:
        return []
    _note_lost(connection, [(row[0], row[3]) for row in rows if row[4] == RunState.RUNNING], now)
    connection.execute(
        update(run)
        .where(run.c.id.in_([row[0] for row in rows]))
        .values(
            state=RunState.RUNNING.value,
            attempts=run.c.attempts + 1,
            token=run.c.token + 1,
            due_at=leased_until,
            lease_owner=owner,
        )
    )
    return [
        Claim(run_id, token + 1, handler, attempts + 1, leased_until, Stored(*stored))
        for run_id, token, handler, attempts, _, *stored in rows
    ]


def _note_lost(connection: Connection, lost: list[tuple[int, int]], now: datetime) -> None:
    """Attempts, as (run id, number), of which nobody will say how they ended."""
    if lost:
        note = "the worker died, or was silent for longer than its lease"
        rows = [{"run_id": one, "attempt": attempt, "failed_at": now, "error": note} for one, attempt in lost]
        connection.execute(insert(failure), rows)


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
        select(run.c.due_at).where(UNFINISHED).order_by(run.c.due_at).limit(1)
    ).scalar_one_or_none()


def holds(held: Sequence[tuple[int, int]]) -> ColumnElement[bool]:
    """Those of the (run id, token) pairs whose lease still holds."""
    return and_(tuple_(run.c.id, run.c.token).in_(held), run.c.state == RunState.RUNNING.value)
