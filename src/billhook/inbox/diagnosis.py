"""Read a sample of an inbox's deliveries, for `billhook doctor`, which judges them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import func, select

from billhook.inbox.filters import TYPE_IS_UNREAD
from billhook.inbox.inbox import Inbox
from billhook.inbox.retention import EMPTY
from billhook.inbox.schema import delivery
from billhook.inbox.sql import in_states


@dataclass(frozen=True, slots=True)
class SampledDelivery:
    """A stored delivery; `headers` are JSON text."""

    id: int
    event_type: str
    body: bytes
    received_at: datetime
    signed_at: datetime | None
    headers: str = "{}"


def newest_deliveries(inbox: Inbox, most: int, most_bytes: int) -> list[SampledDelivery]:
    """Return the newest deliveries with their bodies: `most` at most, with `most_bytes` at most."""
    size = func.length(delivery.c.body)
    found = select(delivery.c.id, size.label("size")).where(
        ~in_states(delivery.c.state, *EMPTY), ~TYPE_IS_UNREAD, size <= most_bytes
    )
    newest = found.order_by(delivery.c.id.desc()).limit(most).subquery().c
    # With the bytes of all that are newer: no body is read that would be too many.
    sums = func.sum(newest.size).over(order_by=newest.id.desc()).label("bytes")
    with_sums = select(newest.id, sums).subquery()
    columns = (delivery.c[each.name] for each in fields(SampledDelivery))
    query = select(*columns).join(with_sums, with_sums.c.id == delivery.c.id)
    query = query.where(with_sums.c.bytes <= most_bytes).order_by(delivery.c.id.desc())
    with inbox.database.read() as connection:
        return [SampledDelivery(*row) for row in connection.execute(query)]
