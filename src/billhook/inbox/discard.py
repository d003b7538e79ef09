"""Giving deliveries up: what is not finished, dead or quarantined becomes done, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime

from sqlalchemy import Connection, select, update

from billhook.inbox.clauses import among, in_state
from billhook.inbox.locks import lock_deliveries, lock_order
from billhook.inbox.ordering import advance
from billhook.inbox.schema import delivery, run
from billhook.inbox.settling import conclude
from billhook.inbox.states import DeliveryState, RunState, check
from billhook.inbox.store import Inbox

__all__ = ["Discarded", "discard"]

# In the words of the order's index, and of no other: these are found by their deliveries.
_OPEN = (RunState.WAITING, RunState.DUE, RunState.RUNNING, RunState.DEAD)
_UNHANDLED = (DeliveryState.RECEIVED, DeliveryState.QUARANTINED)
_HANDLED = (DeliveryState.PLANNED, DeliveryState.DEAD)


@dataclass(frozen=True, slots=True)
class Discarded:
    """What was given up: deliveries, and of those that handlers had, the runs."""

    deliveries: int = 0
    runs: int = 0

    def __add__(self, other: Discarded) -> Discarded:
        return Discarded(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def discard(
    inbox: Inbox, delivery_ids: Sequence[int], reason: str, now: datetime, *, dry_run: bool = False
) -> Discarded:
    """Discard the runs of these deliveries that have not succeeded, and those that no handler had.

    A run that is running at this moment is discarded too: its handler goes on, and how it ends changes
    nothing. Of an ordered run the next in its order becomes due; ring `inbox.bell` after the last batch.
    Deliveries that are done or pruned stay as they are. A `dry_run` counts and changes nothing.
    """
    with inbox.database.read() if dry_run else inbox.database.write() as connection:
        if not dry_run:
            lock_order(connection, among(run.c.delivery_id, delivery_ids))
            lock_deliveries(connection, delivery_ids)
        states = _states(connection, delivery_ids)
        handled = [one for one, state in states.items() if state in _HANDLED]
        runs = connection.execute(
            select(run.c.id, run.c.state, run.c.handler, run.c.order_key)
            .where(among(run.c.delivery_id, handled), in_state(run.c.state, *_OPEN))
            .order_by(run.c.id)
        ).all()
        if not dry_run:
            for state in {RunState(row.state) for row in runs}:
                check(state, RunState.DISCARDED)
            connection.execute(
                update(run)
                .where(among(run.c.id, [row.id for row in runs]), in_state(run.c.state, *_OPEN))
                # The token grows: what an attempt that is under way reports later must find nothing.
                .values(
                    state=RunState.DISCARDED.value,
                    last_error=reason,
                    finished_at=now,
                    lease_owner=None,
                    token=run.c.token + 1,
                )
            )
            _finish(connection, states, reason)
            advance(connection, [(row.handler, row.order_key) for row in runs if row.order_key], now)
    return Discarded(len(states), len(runs))


def _states(connection: Connection, delivery_ids: Sequence[int]) -> dict[int, DeliveryState]:
    query = select(delivery.c.id, delivery.c.state).where(
        among(delivery.c.id, delivery_ids), in_state(delivery.c.state, *_UNHANDLED, *_HANDLED)
    )
    return {row.id: DeliveryState(row.state) for row in connection.execute(query)}


def _finish(connection: Connection, states: dict[int, DeliveryState], reason: str) -> None:
    """Of a delivery without runs the reason is its own; a planned one is done as its last run is."""
    for before in set(states.values()) - {DeliveryState.PLANNED}:
        check(before, DeliveryState.DONE)
        same = [one for one, state in states.items() if state is before]
        connection.execute(
            update(delivery)
            .where(among(delivery.c.id, same), delivery.c.state == before.value)
            .values(state=DeliveryState.DONE.value, error=reason if before in _UNHANDLED else None)
        )
    conclude(connection, {one for one, state in states.items() if state is DeliveryState.PLANNED})
