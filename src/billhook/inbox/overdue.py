"""What nobody has begun although it could be: found again here, in case whoever was told of it forgot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Integer, bindparam, select

from billhook.inbox.clauses import in_state
from billhook.inbox.runs import CLAIMABLE
from billhook.inbox.schema import UtcDateTime, delivery, run
from billhook.inbox.states import DeliveryState

__all__ = ["Overdue", "next_due_at", "overdue"]


@dataclass(frozen=True, slots=True)
class Overdue:
    """A delivery to be handled, `since` its receipt if nobody has read it, else since its run was due.

    `fresh`: nothing of it was ever begun, so that somebody may be on the way to it.
    """

    delivery_id: int
    since: datetime
    fresh: bool


_BEFORE = bindparam("before", type_=UtcDateTime)
_LIMIT = bindparam("at_most", type_=Integer)
_UNREAD = (
    select(delivery.c.id, delivery.c.received_at)
    .where(in_state(delivery.c.state, DeliveryState.RECEIVED), delivery.c.received_at <= _BEFORE)
    .order_by(delivery.c.id)
    .limit(_LIMIT)
)
_DUE = (
    select(run.c.delivery_id, run.c.due_at, run.c.attempts)
    .where(CLAIMABLE, run.c.due_at <= _BEFORE)
    .order_by(run.c.due_at, run.c.id)
    .limit(_LIMIT)
)
_NEXT = select(run.c.due_at).where(CLAIMABLE, run.c.due_at > _BEFORE).order_by(run.c.due_at).limit(1)


def overdue(
    connection: Connection, *, received_before: datetime, due_before: datetime, limit: int
) -> list[Overdue]:
    """Up to `limit` deliveries that wait to be read or have a run to be called, the longest waiting first.

    A run whose lease has ended is due again like any other. Each delivery is named once.
    """
    unread = connection.execute(_UNREAD, {"before": received_before, "at_most": limit})
    found = {row.id: Overdue(row.id, row.received_at, fresh=True) for row in unread}
    for delivery_id, since, attempts in connection.execute(_DUE, {"before": due_before, "at_most": limit}):
        known = found.get(delivery_id)
        if known is None or (known.fresh and attempts):
            found[delivery_id] = Overdue(delivery_id, since, fresh=not attempts)
    return sorted(found.values(), key=lambda one: (one.since, one.delivery_id))[:limit]


def next_due_at(connection: Connection, after: datetime) -> datetime | None:
    """When the next run after that moment may be claimed; None when there is none."""
    return connection.execute(_NEXT, {"before": after}).scalar_one_or_none()
