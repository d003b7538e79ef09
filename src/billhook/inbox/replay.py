"""Doing it again: deliveries are read anew, and finished runs become due, in one transaction a batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, func, or_, select, update

from billhook.inbox.clauses import among, in_state
from billhook.inbox.locks import lock_deliveries, lock_order
from billhook.inbox.ordering import advance
from billhook.inbox.planning import make_runs
from billhook.inbox.records import Plan, Stored, Terms
from billhook.inbox.runs import STORED
from billhook.inbox.schema import delivery, run
from billhook.inbox.states import DeliveryState, RunState, check
from billhook.inbox.store import Inbox

__all__ = ["Newcomer", "Replayed", "replay"]

_FINISHED = in_state(run.c.state, RunState.SUCCEEDED, RunState.DISCARDED, RunState.DEAD)
# A delivery that is still received needs no replay, and of one that was pruned there is nothing to replay.
_HANDLED = (DeliveryState.PLANNED, DeliveryState.DONE, DeliveryState.DEAD)
_REPLAYABLE = (*_HANDLED, DeliveryState.QUARANTINED)

Newcomer = Callable[[Stored, Collection[str]], Terms | None]
"""The terms of a new run, for a delivery and the names that have runs of it; None if it is to have none."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: deliveries that are read anew, runs that are due again, and runs that are new."""

    deliveries: int = 0
    reread: int = 0
    runs: int = 0
    added: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def replay(
    inbox: Inbox,
    delivery_ids: Sequence[int],
    now: datetime,
    *,
    handler: str | None = None,
    newcomer: Newcomer | None = None,
    all_handlers: bool = False,
    as_type: str | None = None,
    dry_run: bool = False,
) -> Replayed:
    """Replay these deliveries; ring `inbox.bell` after the last batch.

    A quarantined one, and one that nobody handled, is read anew. Of the others the failed runs become due:
    those that are dead, and those that wait for another attempt; with `handler` the runs of that name
    however they ended, with `all_handlers` every finished run. Attempts begin at 0; a run that is running,
    or waits for its turn, is left alone, and an ordered one goes back to its place among the others. A
    delivery that was handled before there was this `handler` gets its run from the `newcomer`.
    With `as_type` those that no handler has had are read anew as this type; without it one that names no type
    is left alone. A `dry_run` counts and changes nothing.
    """
    which = _which(handler, all_handlers)
    with inbox.database.read() if dry_run else inbox.database.write() as connection:
        if not dry_run:
            of_these = among(run.c.delivery_id, delivery_ids)
            lock_order(connection, None if newcomer else of_these)
            lock_deliveries(connection, delivery_ids)
        states = _states(connection, delivery_ids, untyped=as_type is not None)
        if as_type is not None:
            return _read_as(connection, states, as_type, dry_run=dry_run)
        again = connection.execute(
            select(run.c.id, run.c.delivery_id, run.c.state, run.c.handler, run.c.order_key)
            .where(among(run.c.delivery_id, states), which)
            .order_by(run.c.id)
        ).all()
        plans = _newcomers(connection, states, handler, newcomer) if handler and newcomer else []
        reread = [] if handler is not None else _to_read_anew(connection, states)
        touched = {row.delivery_id for row in again} | {planned.delivery_id for planned in plans}
        if not dry_run:
            finished = {one: states[one] for one in touched if states[one] is not DeliveryState.PLANNED}
            _change(connection, finished, DeliveryState.PLANNED)
            _change(connection, {one: states[one] for one in reread}, DeliveryState.RECEIVED)
            _make_due(connection, again, now)
            make_runs(connection, plans, now)
    return Replayed(len(touched) + len(reread), len(reread), len(again), len(plans))


def _which(handler: str | None, all_handlers: bool) -> ColumnElement[bool]:
    """The runs that may be made due."""
    failed = and_(run.c.state == RunState.DUE.value, run.c.attempts > 0)
    if handler is not None:
        return and_(run.c.handler == handler, or_(_FINISHED, failed))
    if all_handlers:
        return or_(_FINISHED, failed)
    return or_(run.c.state == RunState.DEAD.value, failed)


def _read_as(
    connection: Connection, states: Mapping[int, DeliveryState], as_type: str, *, dry_run: bool
) -> Replayed:
    """Have those that no handler has had read anew as this type; how they came is kept beside it."""
    reread = _to_read_anew(connection, states)
    if not dry_run:
        named = {
            "event_type": as_type,
            "sent_as": func.coalesce(delivery.c.sent_as, delivery.c.event_type),
        }
        connection.execute(update(delivery).where(among(delivery.c.id, reread)).values(named))
        _change(connection, {one: states[one] for one in reread}, DeliveryState.RECEIVED)
    return Replayed(len(reread), len(reread))


def _states(
    connection: Connection, delivery_ids: Sequence[int], *, untyped: bool
) -> dict[int, DeliveryState]:
    query = select(delivery.c.id, delivery.c.state).where(
        among(delivery.c.id, delivery_ids), in_state(delivery.c.state, *_REPLAYABLE)
    )
    if not untyped:
        query = query.where(delivery.c.event_type != "")
    return {row.id: DeliveryState(row.state) for row in connection.execute(query)}


def _to_read_anew(connection: Connection, states: Mapping[int, DeliveryState]) -> list[int]:
    """Those that were never given to a handler: quarantined, or done because nobody listened."""
    unheard = (DeliveryState.QUARANTINED, DeliveryState.DONE)
    candidates = [one for one, state in states.items() if state in unheard]
    has_run = exists().where(run.c.delivery_id == delivery.c.id)
    query = select(delivery.c.id).where(among(delivery.c.id, candidates), ~has_run)
    return list(connection.execute(query).scalars())


def _newcomers(
    connection: Connection, states: Mapping[int, DeliveryState], handler: str, newcomer: Newcomer
) -> list[Plan]:
    """New runs of deliveries that were handled without this handler, oldest first."""
    handled = [one for one, state in states.items() if state in _HANDLED]
    names: dict[int, list[str]] = {one: [] for one in handled}
    of_these = select(run.c.delivery_id, run.c.handler).where(among(run.c.delivery_id, handled))
    for delivery_id, name in connection.execute(of_these):
        names[delivery_id].append(name)
    without = [one for one in handled if handler not in names[one]]
    query = select(*STORED).where(among(delivery.c.id, without)).order_by(delivery.c.id)
    plans = []
    for stored in (Stored(*row) for row in connection.execute(query)):
        terms = newcomer(stored, names[stored.delivery_id])
        if terms is not None:
            plans.append(Plan(stored.delivery_id, (handler,), terms={handler: terms}))
    return plans


def _make_due(connection: Connection, again: Sequence[Any], now: datetime) -> None:
    """Runs begin anew: due at once, or where they are ordered when it is their turn."""
    waiting = [row for row in again if row.order_key is not None and row.state != RunState.DUE.value]
    waiting_ids = {row.id for row in waiting}
    due = [row for row in again if row.id not in waiting_ids]
    for after, part in ((RunState.WAITING, waiting), (RunState.DUE, due)):
        states = {RunState(row.state) for row in part}
        for before in states - {after}:
            check(before, after)
        connection.execute(
            update(run)
            .where(among(run.c.id, [row.id for row in part]), run.c.state.in_(states))
            # The token grows: an outcome that an earlier attempt reports late must find nothing.
            .values(
                state=after.value,
                attempts=0,
                alone=0,
                excused=0,
                due_at=now,
                token=run.c.token + 1,
                lease_owner=None,
                finished_at=None,
            )
        )
    advance(connection, [(row.handler, row.order_key) for row in waiting], now)


def _change(connection: Connection, states: Mapping[int, DeliveryState], after: DeliveryState) -> None:
    for before in set(states.values()):
        check(before, after)
        same = [one for one, state in states.items() if state is before]
        connection.execute(
            update(delivery)
            .where(among(delivery.c.id, same), delivery.c.state == before.value)
            .values(state=after.value, error=None)
        )
