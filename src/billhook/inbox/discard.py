"""Discard deliveries for an operator: unfinished, dead or quarantined ones become done, with a reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime

from sqlalchemy import Connection, select, update

from billhook.inbox.counts import keeping, open_time
from billhook.inbox.inbox import Inbox
from billhook.inbox.locks import lock_counts, lock_deliveries, lock_order
from billhook.inbox.runs import finish_deliveries, release_next
from billhook.inbox.schema import delivery, run
from billhook.inbox.sql import in_states, in_values
from billhook.inbox.states import DeliveryState, RunState, check

# Not in the words of an index: these runs are found by their deliveries.
_OPEN = (RunState.WAITING, RunState.DUE, RunState.RUNNING, RunState.DEAD)
_UNHANDLED = (DeliveryState.RECEIVED, DeliveryState.QUARANTINED)
_HANDLED = (DeliveryState.PLANNED, DeliveryState.DEAD)


@dataclass(frozen=True, slots=True)
class DiscardResult:
    """How many deliveries and runs were discarded."""

    deliveries: int = 0
    runs: int = 0

    def __add__(self, other: DiscardResult) -> DiscardResult:
        return DiscardResult(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def discard(
    inbox: Inbox, delivery_ids: Sequence[int], reason: str, now: datetime, *, dry_run: bool = False
) -> DiscardResult:
    """Discard the runs of these deliveries that have not succeeded, and deliveries without runs.

    A running run is discarded too: its handler goes on, and its result changes nothing. The next run in the
    order of a discarded one becomes due; call `inbox.waker.wake()` after the last batch.
    Deliveries that are done or pruned stay as they are. A `dry_run` counts and changes nothing.
    """
    with inbox.database.read() if dry_run else inbox.database.write() as connection:
        if not dry_run:
            lock_counts(connection)
            lock_order(connection, delivery_ids)
            lock_deliveries(connection, delivery_ids)
        return discard_in(connection, delivery_ids, reason, now, inbox.known_types, dry_run=dry_run)


def discard_in(
    connection: Connection,
    delivery_ids: Sequence[int],
    reason: str,
    now: datetime,
    known_types: Collection[str] | None,
    *,
    dry_run: bool = False,
) -> DiscardResult:
    """Do the same in a transaction that holds the locks of counts, of these deliveries and of their order."""
    states = _states(connection, delivery_ids)
    handled = [one for one, state in states.items() if state in _HANDLED]
    runs = connection.execute(
        select(run.c.id, run.c.state, run.c.handler, run.c.order_key)
        .where(in_values(run.c.delivery_id, handled), in_states(run.c.state, *_OPEN))
        .order_by(run.c.id)
    ).all()
    if not dry_run:
        for state in {RunState(row.state) for row in runs}:
            check(state, RunState.DISCARDED)
        with keeping(connection, states, known_types):
            connection.execute(
                update(run)
                .where(in_values(run.c.id, [row.id for row in runs]), in_states(run.c.state, *_OPEN))
                # A new token: the result of an attempt that is running now must match nothing.
                .values(
                    state=RunState.DISCARDED.value,
                    last_error=reason,
                    finished_at=open_time(connection, now),
                    # Of a call that is counted already, as failed or dead.
                    duration_seconds=None,
                    lease_owner=None,
                    token=run.c.token + 1,
                )
            )
            _finish(connection, states, reason)
        release_next(connection, [(row.handler, row.order_key) for row in runs if row.order_key], now)
    return DiscardResult(len(states), len(runs))


def _states(connection: Connection, delivery_ids: Sequence[int]) -> dict[int, DeliveryState]:
    query = select(delivery.c.id, delivery.c.state).where(
        in_values(delivery.c.id, delivery_ids), in_states(delivery.c.state, *_UNHANDLED, *_HANDLED)
    )
    return {row.id: DeliveryState(row.state) for row in connection.execute(query)}


def _finish(connection: Connection, states: dict[int, DeliveryState], reason: str) -> None:
    """Make them done; a delivery without runs gets the reason itself."""
    for before in set(states.values()) - {DeliveryState.PLANNED}:
        check(before, DeliveryState.DONE)
        same = [one for one, state in states.items() if state is before]
        connection.execute(
            update(delivery)
            .where(in_values(delivery.c.id, same), delivery.c.state == before.value)
            .values(state=DeliveryState.DONE.value, error=reason if before in _UNHANDLED else None)
        )
    finish_deliveries(connection, {one for one, state in states.items() if state is DeliveryState.PLANNED})
