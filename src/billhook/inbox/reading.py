"""Read bodies of deliveries in bulk, without their runs: for searches that the database cannot do."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select

from billhook.inbox.inbox import Inbox
from billhook.inbox.schema import delivery
from billhook.inbox.sql import in_values

__all__ = ["ReadBody", "read_bodies"]

_BATCH = 500


class ReadBody(NamedTuple):
    """The body of a delivery, with its type and its stored state."""

    delivery_id: int
    event_type: str
    state: str
    body: bytes


def read_bodies(inbox: Inbox, event_types: Collection[str], since: datetime) -> Iterator[ReadBody]:
    """Yield the bodies of deliveries of these types received since then, oldest first.

    A batch is in memory at a time, and no transaction is open while the caller works.
    """
    columns = (delivery.c.id, delivery.c.event_type, delivery.c.state, delivery.c.body)
    chosen = select(*columns).where(
        in_values(delivery.c.event_type, sorted(event_types)), delivery.c.received_at >= since
    )
    after = 0
    while True:
        with inbox.database.read() as connection:
            rows = connection.execute(
                chosen.where(delivery.c.id > after).order_by(delivery.c.id).limit(_BATCH)
            ).all()
        yield from (ReadBody(*row) for row in rows)
        if len(rows) < _BATCH:
            return
        after = rows[-1].id
