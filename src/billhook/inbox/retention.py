"""Letting go of old deliveries, a little at a time, so that no accept ever waits long for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, select

from billhook.inbox.schema import delivery
from billhook.inbox.states import DeliveryState

__all__ = ["BATCH_LIMIT", "find_old", "prune"]

BATCH_LIMIT = 500
FINISHED = (DeliveryState.DONE.value, DeliveryState.DEAD.value, DeliveryState.QUARANTINED.value)


def find_old(connection: Connection, received_before: datetime) -> list[int]:
    """Up to BATCH_LIMIT finished deliveries older than that, by id.

    Ids follow the time of receipt, so the search goes from the oldest and stops at the first that is
    young: most looks read one row.
    """
    rows = connection.execute(
        select(delivery.c.id, delivery.c.state, delivery.c.received_at).order_by(delivery.c.id)
    )
    found: list[int] = []
    for delivery_id, state, received_at in rows:
        if received_at >= received_before or len(found) == BATCH_LIMIT:
            break
        if state in FINISHED:
            found.append(delivery_id)
    return found


def prune(connection: Connection, delivery_ids: Sequence[int]) -> int:
    """Delete those of the deliveries that are finished still, with their runs and failures."""
    return connection.execute(
        delete(delivery).where(delivery.c.id.in_(delivery_ids), delivery.c.state.in_(FINISHED))
    ).rowcount
