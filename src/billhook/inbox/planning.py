"""From a delivery that was read to the runs of its handlers."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, update

from billhook.inbox.clauses import among, in_state
from billhook.inbox.ordering import advance
from billhook.inbox.records import Plan, Terms, Twin
from billhook.inbox.rows import insert_rows
from billhook.inbox.schema import delivery, run
from billhook.inbox.settling import conclude
from billhook.inbox.states import DeliveryState, RunState, check
from billhook.inbox.twins import find_twins, reason

__all__ = ["make_runs", "plan"]

_PLAIN = Terms()


def plan(connection: Connection, plans: Sequence[Plan], now: datetime) -> tuple[list[int], list[Twin]]:
    """Make the runs of received deliveries, oldest first; under billhook.inbox.locks.

    Returns the ids of those that nobody else planned meanwhile, and which runs are twins of others.
    """
    won: set[int] = set()
    for state, group in groupby(sorted(plans, key=_planned_state), key=_planned_state):
        check(DeliveryState.RECEIVED, state)
        for error, same in groupby(sorted(group, key=lambda p: p.error or ""), key=lambda p: p.error):
            won.update(_win(connection, [p.delivery_id for p in same], state, error))
    mine = [planned for planned in plans if planned.delivery_id in won]
    return [planned.delivery_id for planned in mine], make_runs(connection, mine, now)


def make_runs(connection: Connection, plans: Sequence[Plan], now: datetime) -> list[Twin]:
    """Insert the runs of planned deliveries: due, waiting for their turn, or discarded as twins of others.

    Returns the twins; a delivery that has nothing else is done.
    """
    originals = find_twins(connection, plans)
    plain: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    keys = []
    for planned in plans:
        for handler in planned.handlers:
            terms = planned.terms.get(handler, _PLAIN)
            row = _row(planned.delivery_id, handler, now)
            if terms is _PLAIN:
                plain.append(row)
                continue
            others.append(row | _on_terms(terms, originals.get((planned.delivery_id, handler)), now))
            if terms.order_key is not None:
                keys.append((handler, terms.order_key))
    insert_rows(connection, run, plain)
    insert_rows(connection, run, others)
    conclude(connection, {delivery_id for delivery_id, _ in originals})
    advance(connection, keys, now)
    return [Twin(delivery_id, handler, original) for (delivery_id, handler), original in originals.items()]


def _row(delivery_id: int, handler: str, now: datetime) -> dict[str, Any]:
    return {
        "delivery_id": delivery_id,
        "handler": handler,
        "state": RunState.DUE.value,
        "attempts": 0,
        "due_at": now,
        # Not from 0: an outcome from before the file was replaced must fit no run of the new one.
        "token": secrets.randbits(30),
    }


def _on_terms(terms: Terms, original: int | None, now: datetime) -> dict[str, Any]:
    """What is different about a run that has its turn, or that may be a twin."""
    state = RunState.DUE if terms.order_key is None else RunState.WAITING
    error = None
    if original is not None and terms.likeness is not None:
        state, error = RunState.DISCARDED, reason(original, terms.likeness)
    return {
        "state": state.value,
        "order_key": terms.order_key,
        "identity": terms.likeness.digest if terms.likeness else None,
        "twin_of": original,
        "last_error": error,
        "finished_at": None if original is None else now,
    }


def _planned_state(planned: Plan) -> DeliveryState:
    if planned.error is not None:
        return DeliveryState.QUARANTINED
    return DeliveryState.PLANNED if planned.handlers else DeliveryState.DONE


def _win(
    connection: Connection, delivery_ids: list[int], state: DeliveryState, error: str | None
) -> Iterable[int]:
    return connection.execute(
        update(delivery)
        .where(among(delivery.c.id, delivery_ids), in_state(delivery.c.state, DeliveryState.RECEIVED))
        .values(state=state.value, error=error)
        .returning(delivery.c.id)
    ).scalars()
