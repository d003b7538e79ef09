"""The life of runs in a transaction: claim, renew, release.

A run that waits for its turn is none of this module's business: see billhook.inbox.ordering.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Text,
    and_,
    case,
    cast,
    literal_column,
    or_,
    select,
    update,
)

from billhook.inbox.clauses import among, in_state
from billhook.inbox.lapse import JOINED, LOST_IN_QUEUE, LOST_JOINED, QUEUED, lapse
from billhook.inbox.records import Claim, Stored
from billhook.inbox.schema import delivery, run
from billhook.inbox.states import DeliveryState, RunState, check

__all__ = [
    "CLAIMABLE",
    "LEASE",
    "STORED",
    "NextTimes",
    "claim",
    "claim_suspect",
    "holds",
    "join",
    "next_due_at",
    "next_times",
    "received",
    "release",
    "renew",
    "suspect_due",
]

STORED: tuple[Column[Any], ...] = (
    delivery.c.id,
    delivery.c.source,
    delivery.c.key,
    delivery.c.event_type,
    delivery.c.body,
    delivery.c.headers,
    delivery.c.signed_at,
    delivery.c.received_at,
    delivery.c.slot,
    delivery.c.sent_as,
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
    run.c.alone,
    run.c.excused,
)
# And may be claimed when its time comes: one that waits for its turn is in no claim's way.
CLAIMABLE = in_state(run.c.state, RunState.DUE, RunState.RUNNING)
_PLAIN = or_(run.c.alone == 0, run.c.state == RunState.RUNNING.value)
_SUSPECT = and_(run.c.alone == literal_column("1"), in_state(run.c.state, RunState.DUE))
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
    suspects: bool = True,
    spread: timedelta = timedelta(0),
) -> list[Claim]:
    """Take up to `limit` runs whose time has come, their attempt counted before anyone calls them.

    Leases that have ended lapse first, see billhook.inbox.lapse. Only the first `idle` are begun at once; the
    others are marked as queued, and if their worker dies that is no attempt of theirs. Without `suspects`
    none is taken whose last attempt was lost with its worker.
    """
    query = select(*_CLAIMED).where(CLAIMABLE, run.c.due_at <= now)
    if only is not None:
        query = query.where(run.c.delivery_id == only)
    if not suspects:
        query = query.where(_PLAIN)
    rows = _first_few(connection, query.order_by(run.c.due_at, run.c.id).limit(limit))
    while any(row.state == RunState.RUNNING for row in rows):
        lapse(connection, now, only=only, spread=spread)
        rows = _first_few(connection, query.order_by(run.c.due_at, run.c.id).limit(limit))
    # What was lost in a queue is begun at once, or left until it can be: so it is found out, if it kills.
    queued = list(takewhile(lambda row: row.lease_owner != LOST_IN_QUEUE, rows[idle:]))
    return _take(connection, rows[:idle], owner, leased_until) + _take(
        connection, queued, owner + QUEUED, leased_until
    )


def claim_suspect(
    connection: Connection, *, owner: str, now: datetime, leased_until: datetime, only: int | None = None
) -> Claim | None:
    """Take one run whose last attempt was lost with its worker, those first that were lost alone least often.

    It is to be begun beside nothing else. Those that were joined by others when they were lost come last.
    """
    query = select(*_CLAIMED).where(_SUSPECT, run.c.due_at <= now)
    if only is not None:
        query = query.where(run.c.delivery_id == only)
    joined = case((run.c.lease_owner == LOST_JOINED, 1), else_=0)
    order = (joined, run.c.attempts - run.c.excused, run.c.due_at, run.c.id)
    rows = _first_few(connection, query.order_by(*order).limit(1))
    return next(iter(_take(connection, rows, owner, leased_until)), None)


def join(connection: Connection, held: Sequence[tuple[int, int]]) -> None:
    """Note of suspects that are running, as (run id, token), that others are begun beside them."""
    if held:
        connection.execute(
            update(run)
            .where(holds(held), run.c.alone == 1, ~run.c.lease_owner.endswith(JOINED))
            .values(lease_owner=run.c.lease_owner + JOINED)
        )


def _first_few(connection: Connection, query: Select[Any]) -> list[Any]:
    """First the few runs, by the index alone and as they are once they are locked; then their deliveries."""
    few = query.with_for_update(skip_locked=True).cte("few")
    rows = connection.execute(select(few, *STORED).join(delivery, delivery.c.id == few.c.delivery_id))
    return sorted(rows, key=lambda row: (row.due_at, row.run_id))  # here, where no body is moved for it


def _take(connection: Connection, rows: list[Any], owner: str, leased_until: datetime) -> list[Claim]:
    if rows:
        check(RunState.DUE, RunState.RUNNING)
        connection.execute(
            update(run)
            .where(among(run.c.id, [row.run_id for row in rows]))
            .values(
                state=RunState.RUNNING.value,
                attempts=run.c.attempts + 1,
                token=run.c.token + 1,
                due_at=leased_until,
                lease_owner=owner,
            )
        )
    return [_claim(row, leased_until) for row in rows]


def _claim(row: Any, leased_until: datetime) -> Claim:
    return Claim(
        row.run_id,
        row.token + 1,
        row.handler,
        row.attempts + 1,
        leased_until,
        Stored(*tuple(row)[len(_CLAIMED) :]),
        row.excused,
        row.alone == 1,
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


def suspect_due(connection: Connection, delivery_id: int, now: datetime) -> bool:
    """Whether a suspect of that delivery may be claimed."""
    query = select(run.c.id).where(_SUSPECT, run.c.due_at <= now, run.c.delivery_id == delivery_id).limit(1)
    return connection.execute(query).first() is not None


class NextTimes(NamedTuple):
    """When the next run may be claimed, or lapses; and the next suspect. None when there is none."""

    due_at: datetime | None
    suspect_at: datetime | None


def next_times(connection: Connection) -> NextTimes:
    """For a loop that must know when to look again."""
    due = select(run.c.due_at).where(CLAIMABLE, _PLAIN).order_by(run.c.due_at).limit(1)
    suspect = select(run.c.due_at).where(_SUSPECT).order_by(run.c.due_at).limit(1)
    row = connection.execute(select(due.scalar_subquery(), suspect.scalar_subquery())).one()
    return NextTimes(*row)


def next_due_at(connection: Connection) -> datetime | None:
    """When the next run of either kind may be claimed; None when none is unfinished."""
    return min(filter(None, next_times(connection)), default=None)


def holds(held: Sequence[tuple[int, int]]) -> ColumnElement[bool]:
    """Those of the (run id, token) pairs whose lease still holds."""
    return and_(
        among(run.c.id, [run_id for run_id, _ in held]),  # by the index; then by the pair
        among(LEASE, [f"{run_id}:{token}" for run_id, token in held]),
        run.c.state == RunState.RUNNING.value,
    )
