"""Plan deliveries: make the runs of their handlers, or quarantine them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, update

from billhook.inbox.content_dedupe import duplicate_reason, find_duplicates
from billhook.inbox.ordering import release_next
from billhook.inbox.records import DuplicateRun, RunOptions, RunPlan
from billhook.inbox.schema import delivery, run
from billhook.inbox.settling import finish_deliveries
from billhook.inbox.sql import in_states, in_values, insert_rows
from billhook.inbox.states import DeliveryState, RunState, check

__all__ = ["make_runs", "plan"]

_PLAIN = RunOptions()


def plan(
    connection: Connection, plans: Sequence[RunPlan], now: datetime
) -> tuple[list[int], list[DuplicateRun]]:
    """Make the runs of received deliveries, oldest first; under billhook.inbox.locks.

    Returns the ids of those that no other worker planned meanwhile, and the content duplicates.
    """
    won: set[int] = set()
    for state, group in groupby(sorted(plans, key=_planned_state), key=_planned_state):
        check(DeliveryState.RECEIVED, state)
        for error, same in groupby(sorted(group, key=lambda p: p.error or ""), key=lambda p: p.error):
            won.update(_claim_for_planning(connection, [p.delivery_id for p in same], state, error))
    mine = [planned for planned in plans if planned.delivery_id in won]
    return [planned.delivery_id for planned in mine], make_runs(connection, mine, now)


def make_runs(connection: Connection, plans: Sequence[RunPlan], now: datetime) -> list[DuplicateRun]:
    """Insert the runs of planned deliveries: due, waiting in their order, or discarded as content duplicates.

    Returns the duplicates; a delivery that has no other runs is done.
    """
    originals = find_duplicates(connection, plans)
    plain: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    keys = []
    for planned in plans:
        for handler in planned.handlers:
            options = planned.options.get(handler, _PLAIN)
            row = _row(planned.delivery_id, handler, now)
            if options is _PLAIN:
                plain.append(row)
                continue
            others.append(row | _options_row(options, originals.get((planned.delivery_id, handler)), now))
            if options.order_key is not None:
                keys.append((handler, options.order_key))
    insert_rows(connection, run, plain)
    insert_rows(connection, run, others)
    finish_deliveries(connection, {delivery_id for delivery_id, _ in originals})
    release_next(connection, keys, now)
    return [
        DuplicateRun(delivery_id, handler, original) for (delivery_id, handler), original in originals.items()
    ]


def _row(delivery_id: int, handler: str, now: datetime) -> dict[str, Any]:
    return {
        "delivery_id": delivery_id,
        "handler": handler,
        "state": RunState.DUE.value,
        "attempts": 0,
        "due_at": now,
        # Random, not 0: a result from before the file was replaced must match no run of the new file.
        "token": secrets.randbits(30),
    }


def _options_row(options: RunOptions, original: int | None, now: datetime) -> dict[str, Any]:
    """Return the columns of a run with options: ordered, or a possible content duplicate."""
    state = RunState.DUE if options.order_key is None else RunState.WAITING
    error = None
    if original is not None and options.content_key is not None:
        state, error = RunState.DISCARDED, duplicate_reason(original, options.content_key)
    return {
        "state": state.value,
        "order_key": options.order_key,
        "identity": options.content_key.digest if options.content_key else None,
        "twin_of": original,
        "last_error": error,
        "finished_at": None if original is None else now,
    }


def _planned_state(planned: RunPlan) -> DeliveryState:
    if planned.error is not None:
        return DeliveryState.QUARANTINED
    return DeliveryState.PLANNED if planned.handlers else DeliveryState.DONE


def _claim_for_planning(
    connection: Connection, delivery_ids: list[int], state: DeliveryState, error: str | None
) -> Iterable[int]:
    return connection.execute(
        update(delivery)
        .where(in_values(delivery.c.id, delivery_ids), in_states(delivery.c.state, DeliveryState.RECEIVED))
        .values(state=state.value, error=error)
        .returning(delivery.c.id)
    ).scalars()
