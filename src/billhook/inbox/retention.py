"""Letting go of old deliveries, a little at a time, so that no accept ever waits long for it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, select

from billhook.inbox.schema import delivery
from billhook.inbox.states import DeliveryState

__all__ = ["BATCH_LIMIT", "prune"]

BATCH_LIMIT = 500
_FINISHED = (DeliveryState.DONE.value, DeliveryState.DEAD.value, DeliveryState.QUARANTINED.value)


def prune(connection: Connection, received_before: datetime) -> int:
    """Delete up to BATCH_LIMIT finished deliveries with their runs and failures; returns how many.

    Ids follow the time of receipt, so the oldest are found at the start of the table without an index.
    """
    oldest = (
        select(delivery.c.id)
        .where(delivery.c.state.in_(_FINISHED), delivery.c.received_at < received_before)
        .order_by(delivery.c.id)
        .limit(BATCH_LIMIT)
    )
    ids = connection.execute(oldest).scalars().all()
    if ids:
        connection.execute(delete(delivery).where(delivery.c.id.in_(ids)))
    return len(ids)
