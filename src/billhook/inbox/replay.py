"""Replay: deliveries are planned again, and finished runs become due, in one transaction a batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from billhook.inbox.counts import keeping
from billhook.inbox.inbox import Inbox
from billhook.inbox.locks import lock_counts, lock_deliveries, lock_order
from billhook.inbox.pending import STORED_COLUMNS
from billhook.inbox.planning import make_runs
from billhook.inbox.records import RunOptions, RunPlan, StoredDelivery
from billhook.inbox.runs import release_next
from billhook.inbox.schema import IDENTIFIERS, delivery, run
from billhook.inbox.sql import in_states, in_values
from billhook.inbox.states import DeliveryState, RunState, check

_FINISHED = in_states(run.c.state, RunState.SUCCEEDED, RunState.DISCARDED, RunState.DEAD)
# A delivery that is still received needs no replay, and a pruned one has nothing to replay.
_HANDLED = (DeliveryState.PLANNED, DeliveryState.DONE, DeliveryState.DEAD)
_AGAIN = (run.c.id, run.c.delivery_id, run.c.state, run.c.handler, run.c.order_key)
_REPLAYABLE = (*_HANDLED, DeliveryState.QUARANTINED)

Backfill = Callable[[StoredDelivery, Collection[str]], RunOptions | None]
"""Options of a new run, for a delivery and the names of handlers with runs of it; None for no run."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Deliveries replayed; of them `requeued` to be planned again; runs made due again; runs `added`."""

    deliveries: int = 0
    requeued: int = 0
    runs: int = 0
    added: int = 0

    def __add__(self, other: ReplayResult) -> ReplayResult:
        return ReplayResult(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def replay(
    inbox: Inbox,
    delivery_ids: Sequence[int],
    now: datetime,
    *,
    handler: str | None = None,
    only_failed: bool = False,
    backfill: Backfill | None = None,
    all_handlers: bool = False,
    as_type: str | None = None,
    due: Callable[[int], datetime] | None = None,
    dry_run: bool = False,
) -> ReplayResult:
    """Replay these deliveries; call `inbox.waker.wake()` after the last batch.

    A quarantined delivery, and one without runs, is planned again. Of the others the failed runs become due:
    dead ones, and those that wait for a retry; with `handler` those of that name in any finished state, or
    `only_failed` ones; with `all_handlers` every finished run. Attempts start at 0. A run that is running or
    waits in its order is left alone; an ordered one goes back to its place. `backfill` makes first runs.
    With `as_type` deliveries without runs are planned again as this type; without it a delivery without a
    type is left alone. `due` returns when the run of an index in this batch is due, by default `now`: for a
    rate that holds without a process that waits. A `dry_run` counts and changes nothing.
    """
    with inbox.database.read() if dry_run else inbox.database.write() as connection:
        if not dry_run:
            lock_counts(connection)
            lock_order(connection, None if backfill else delivery_ids)  # new runs may be ordered
            lock_deliveries(connection, delivery_ids)  # before reading: a worker may be settling them
        states = _states(connection, delivery_ids, untyped=as_type is not None)
        kept: AbstractContextManager[object] = (
            nullcontext() if dry_run else keeping(connection, states, inbox.known_types)
        )
        if as_type is not None:
            with kept:
                return _read_as(connection, states, as_type, dry_run=dry_run)
        which = (in_values(run.c.delivery_id, states), _which(handler, all_handlers, only_failed))
        again = connection.execute(select(*_AGAIN).where(*which).order_by(run.c.id)).all()
        plans = _backfill_plans(connection, states, handler, backfill) if handler and backfill else []
        requeued = [] if handler is not None else _to_read_anew(connection, states)
        touched = {row.delivery_id for row in again} | {planned.delivery_id for planned in plans}
        if not dry_run:
            finished = [number for number in touched if states[number] is not DeliveryState.PLANNED]
            with kept:
                _change(connection, states, finished, DeliveryState.PLANNED)
                _change(connection, states, requeued, DeliveryState.RECEIVED)
                _make_due(connection, again, now, due)
            make_runs(connection, plans, now)
    return ReplayResult(len(touched) + len(requeued), len(requeued), len(again), len(plans))


def _which(handler: str | None, all_handlers: bool, only_failed: bool) -> ColumnElement[bool]:
    """Return which runs may be made due."""
    failed = and_(run.c.state == RunState.DUE.value, run.c.attempts > 0)
    broken = or_(run.c.state == RunState.DEAD.value, failed)
    if handler is not None:
        return and_(run.c.handler == handler, broken if only_failed else or_(_FINISHED, failed))
    return or_(_FINISHED, failed) if all_handlers else broken


def store_edited(inbox: Inbox, edited: StoredDelivery, planned: RunPlan, original: int) -> int:
    """Store the edited copy of a delivery with the runs that are planned for it; return its id."""
    names = ("source", "key", "event_type", "sent_as", "headers", "received_at", "body")
    values: dict[str, Any] = {name: getattr(edited, name) for name in names}
    values |= {"digest": sha256(edited.body).digest(), "edited_from": original}
    values |= zip((column.name for column in IDENTIFIERS), planned.identifiers, strict=False)
    with inbox.database.write() as connection:
        lock_order(connection)
        row = insert(delivery).values(**values, state=DeliveryState.PLANNED.value)
        delivery_id: int = connection.execute(row.returning(delivery.c.id)).scalar_one()
        make_runs(connection, [planned._replace(delivery_id=delivery_id)], edited.received_at)
    return delivery_id


def _read_as(
    connection: Connection, states: Mapping[int, DeliveryState], as_type: str, *, dry_run: bool
) -> ReplayResult:
    """Requeue deliveries without runs to be planned as this type; the type as sent is kept in `sent_as`."""
    requeued = _to_read_anew(connection, states)
    if not dry_run:
        named = {
            "event_type": as_type,
            "sent_as": func.coalesce(delivery.c.sent_as, delivery.c.event_type),
        }
        connection.execute(update(delivery).where(in_values(delivery.c.id, requeued)).values(named))
        _change(connection, states, requeued, DeliveryState.RECEIVED)
    return ReplayResult(len(requeued), len(requeued))


def _states(
    connection: Connection, delivery_ids: Sequence[int], *, untyped: bool
) -> dict[int, DeliveryState]:
    query = select(delivery.c.id, delivery.c.state).where(
        in_values(delivery.c.id, delivery_ids), in_states(delivery.c.state, *_REPLAYABLE)
    )
    if not untyped:
        query = query.where(delivery.c.event_type != "")
    return {row.id: DeliveryState(row.state) for row in connection.execute(query)}


def _to_read_anew(connection: Connection, states: Mapping[int, DeliveryState]) -> list[int]:
    """Return those without runs: quarantined, or done because they had no handler."""
    unheard = (DeliveryState.QUARANTINED, DeliveryState.DONE)
    candidates = [one for one, state in states.items() if state in unheard]
    has_run = exists().where(run.c.delivery_id == delivery.c.id)
    query = select(delivery.c.id).where(in_values(delivery.c.id, candidates), ~has_run)
    return list(connection.execute(query).scalars())


def _backfill_plans(
    connection: Connection, states: Mapping[int, DeliveryState], handler: str, backfill: Backfill
) -> list[RunPlan]:
    """Plan new runs of deliveries that were handled before this handler existed, oldest first."""
    handled = [delivery_id for delivery_id, state in states.items() if state in _HANDLED]
    names: dict[int, list[str]] = {delivery_id: [] for delivery_id in handled}
    of_these = select(run.c.delivery_id, run.c.handler).where(in_values(run.c.delivery_id, handled))
    for delivery_id, name in connection.execute(of_these):
        names[delivery_id].append(name)
    without = [delivery_id for delivery_id in handled if handler not in names[delivery_id]]
    query = select(*STORED_COLUMNS).where(in_values(delivery.c.id, without)).order_by(delivery.c.id)
    plans = []
    for stored in (StoredDelivery(*row) for row in connection.execute(query)):
        options = backfill(stored, names[stored.delivery_id])
        if options is not None:
            plans.append(RunPlan(stored.delivery_id, (handler,), options={handler: options}))
    return plans


def _make_due(
    connection: Connection,
    again: Sequence[Any],
    now: datetime,
    due_at: Callable[[int], datetime] | None = None,
) -> None:
    """Make runs due at once or, where they are ordered, waiting for their place."""
    # An ordered run waits for its place, unless it is due already: then it has its place.
    waiting = [row for row in again if row.order_key is not None and row.state != RunState.DUE.value]
    waiting_ids = {row.id for row in waiting}
    due = [row for row in again if row.id not in waiting_ids]
    for after, part in ((RunState.WAITING, waiting), (RunState.DUE, due)):
        states = {RunState(row.state) for row in part}
        for before in states - {after}:
            check(before, after)
        connection.execute(
            update(run)
            .where(in_values(run.c.id, [row.id for row in part]), run.c.state.in_(states))
            # A new token: a late result of an earlier attempt must match nothing.
            .values(
                state=after.value,
                attempts=0,
                runs_alone=0,
                excused_attempts=0,
                # Not for a run that only waits for its retry: that is the same occurrence, hastened.
                replays=run.c.replays + case((run.c.state == RunState.DUE.value, 0), else_=1),
                due_at=now,
                token=run.c.token + 1,
                lease_owner=None,
                finished_at=None,
            )
        )
    if due_at is not None and due:
        later = update(run).where(run.c.id == bindparam("run_id")).values(due_at=bindparam("moment"))
        moments = [{"run_id": row.id, "moment": due_at(n)} for n, row in enumerate(due)]
        connection.execute(later, moments)
    release_next(connection, [(row.handler, row.order_key) for row in waiting], now)


def _change(
    connection: Connection,
    states: Mapping[int, DeliveryState],
    delivery_ids: Collection[int],
    after: DeliveryState,
) -> None:
    """Set the state of these deliveries; `states` has their present ones. Raises IllegalTransition."""
    for before in {states[delivery_id] for delivery_id in delivery_ids}:
        check(before, after)
        same = [delivery_id for delivery_id in delivery_ids if states[delivery_id] is before]
        connection.execute(
            update(delivery)
            .where(in_values(delivery.c.id, same), delivery.c.state == before.value)
            .values(state=after.value, error=None)
        )
