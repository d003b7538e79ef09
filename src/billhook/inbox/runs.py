"""The life of runs in a transaction: plan, claim, renew, settle. Each UPDATE names the state before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby

from sqlalchemy import ColumnElement, Connection, and_, case, exists, insert, select, tuple_, update

from billhook.inbox.records import Claim, Outcome, Plan, Stored
from billhook.inbox.schema import delivery, failure, run
from billhook.inbox.states import DeliveryState, RunState, check

__all__ = ["claim", "next_due_at", "plan", "received", "release", "renew", "settle"]

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
_UNFINISHED = run.c.state.in_((RunState.DUE.value, RunState.RUNNING.value))


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
        .where(_UNFINISHED, run.c.due_at <= now)
        .order_by(run.c.due_at, run.c.id)
        .limit(limit)
        .with_for_update(of=run, skip_locked=True)
    )
    if only is not None:
        due = due.where(run.c.delivery_id == only)
    rows = connection.execute(due).all()
    if not rows:
        return []
    lost = [row for row in rows if row[4] == RunState.RUNNING]
    if lost:
        note = "the worker died, or was silent for longer than its lease"
        connection.execute(
            insert(failure),
            [{"run_id": row[0], "attempt": row[3], "failed_at": now, "error": note} for row in lost],
        )
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


def renew(
    connection: Connection, held: Sequence[tuple[int, int]], leased_until: datetime
) -> set[tuple[int, int]]:
    """Extend the leases of (run id, token) pairs; returns those that are still held."""
    if not held:
        return set()
    rows = connection.execute(
        update(run).where(_holds(held)).values(due_at=leased_until).returning(run.c.id, run.c.token)
    )
    return {(run_id, token) for run_id, token in rows}


def release(connection: Connection, held: Sequence[tuple[int, int]], now: datetime) -> None:
    """Give back runs that were claimed and never called: due at once, their attempt not counted."""
    if held:
        check(RunState.RUNNING, RunState.DUE)
        connection.execute(
            update(run)
            .where(_holds(held))
            .values(state=RunState.DUE.value, due_at=now, attempts=run.c.attempts - 1, lease_owner=None)
        )


def settle(connection: Connection, outcomes: Sequence[Outcome]) -> set[int]:
    """Write how runs ended, and what that makes of their deliveries; returns the run ids settled.

    An outcome whose token is no longer the run's own changes nothing: somebody else holds the lease.
    """
    if not outcomes:
        return set()
    settled: set[int] = set()
    succeeded = [outcome for outcome in outcomes if outcome.state is RunState.SUCCEEDED]
    if succeeded:
        settled.update(_finish(connection, succeeded, succeeded[-1]))
    for outcome in outcomes:
        check(RunState.RUNNING, outcome.state)
        if outcome.state is not RunState.SUCCEEDED:
            settled.update(_finish(connection, [outcome], outcome))
    failures = [
        {
            "run_id": outcome.run_id,
            "attempt": outcome.attempt,
            "failed_at": outcome.at,
            "error": outcome.error,
            "traceback": outcome.traceback,
        }
        for outcome in outcomes
        if outcome.run_id in settled and outcome.state in (RunState.DUE, RunState.DEAD)
    ]
    if failures:
        connection.execute(insert(failure), failures)
    _conclude(
        connection,
        {o.delivery_id for o in outcomes if o.run_id in settled and o.state is not RunState.DUE},
    )
    return settled


def _finish(connection: Connection, outcomes: list[Outcome], like: Outcome) -> Iterable[int]:
    """Settle runs that all ended `like` one of them, where the token still holds."""
    values: dict[str, object] = {"state": like.state.value, "last_error": like.error, "lease_owner": None}
    if like.state is RunState.DUE:
        values["due_at"] = like.due_at
    else:
        values["finished_at"] = like.at
    held = [(outcome.run_id, outcome.token) for outcome in outcomes]
    return connection.execute(update(run).where(_holds(held)).values(values).returning(run.c.id)).scalars()


def _holds(held: Sequence[tuple[int, int]]) -> ColumnElement[bool]:
    return and_(tuple_(run.c.id, run.c.token).in_(held), run.c.state == RunState.RUNNING.value)


def _conclude(connection: Connection, delivery_ids: set[int]) -> None:
    """A delivery whose last run finished is done, or dead if any of them is."""
    if not delivery_ids:
        return
    own = run.c.delivery_id == delivery.c.id
    check(DeliveryState.PLANNED, DeliveryState.DONE)
    check(DeliveryState.PLANNED, DeliveryState.DEAD)
    connection.execute(
        update(delivery)
        .where(
            delivery.c.id.in_(delivery_ids),
            delivery.c.state == DeliveryState.PLANNED.value,
            ~exists().where(own, _UNFINISHED),
        )
        .values(
            state=case(
                (exists().where(own, run.c.state == RunState.DEAD.value), DeliveryState.DEAD.value),
                else_=DeliveryState.DONE.value,
            )
        )
    )


def next_due_at(connection: Connection) -> datetime | None:
    """When the next run may be claimed; None when none is unfinished."""
    return connection.execute(
        select(run.c.due_at).where(_UNFINISHED).order_by(run.c.due_at).limit(1)
    ).scalar_one_or_none()
