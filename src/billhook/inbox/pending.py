"""Read pending work: unread deliveries, due runs, and when the next run is due. Takes no lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Integer,
    Select,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
)

from billhook.inbox.schema import delivery, handler, run
from billhook.inbox.sql import UtcDateTime, in_states
from billhook.inbox.states import DeliveryState, RunState

STORED_COLUMNS: tuple[Column[Any], ...] = (
    delivery.c.id,
    delivery.c.source,
    delivery.c.key,
    delivery.c.event_type,
    delivery.c.body,
    delivery.c.headers,
    delivery.c.signed_at,
    delivery.c.received_at,
    delivery.c.duplicate_slot,
    delivery.c.sent_as,
)
"""In the order of StoredDelivery's fields."""
CLAIMABLE = in_states(run.c.state, RunState.DUE, RunState.RUNNING)
"""May be claimed at its time: when it is due, or when its lease runs out. As the partial index has it."""
SUSPECT = and_(run.c.runs_alone == literal_column("1"), in_states(run.c.state, RunState.DUE))
"""Due, and its last attempt was lost with its worker. As the partial index has it."""
NOT_SUSPECT = or_(run.c.runs_alone == 0, run.c.state == RunState.RUNNING.value)


@dataclass(frozen=True, slots=True)
class PendingDelivery:
    """A delivery to be handled, `since` its receipt if it is unread, else since its run was due.

    `fresh`: no run of it was ever started, so a worker may have its message already.
    """

    delivery_id: int
    since: datetime
    fresh: bool


class NextTimes(NamedTuple):
    """When the next run may be claimed, or its lease runs out; and the next suspect. None without one."""

    due_at: datetime | None
    suspect_at: datetime | None
    release_at: datetime | None = None
    """When to look at held runs again; see billhook.inbox.limits."""


_BEFORE = bindparam("before", type_=UtcDateTime)
_LIMIT = bindparam("at_most", type_=Integer)
# In the order of the partial indexes, so that a long backlog costs no more than a short one.
_UNREAD = (
    select(delivery.c.id, delivery.c.received_at)
    .where(in_states(delivery.c.state, DeliveryState.RECEIVED), delivery.c.received_at <= _BEFORE)
    .order_by(delivery.c.id)
    .limit(_LIMIT)
)
_DUE = (
    select(run.c.delivery_id, run.c.due_at, run.c.attempts)
    .where(CLAIMABLE, run.c.due_at <= _BEFORE)
    .order_by(run.c.due_at, run.c.id)
    .limit(_LIMIT)
)
HELD_FROM = datetime(9000, 1, 1, tzinfo=UTC)
"""The moments from here on are those of held runs; see billhook.inbox.limits."""
NEXT_RELEASE = select(func.min(handler.c.release_at)).where(handler.c.paused_at.is_(None)).scalar_subquery()
_NEXT = select(
    select(run.c.due_at)
    .where(CLAIMABLE, run.c.due_at > _BEFORE, run.c.due_at < HELD_FROM)
    .order_by(run.c.due_at)
    .limit(1)
    .scalar_subquery(),
    NEXT_RELEASE,
)
RECEIVED = (
    select(*STORED_COLUMNS)
    .where(in_states(delivery.c.state, DeliveryState.RECEIVED))
    .order_by(delivery.c.id)
    .limit(_LIMIT)
)
"""Up to `at_most` deliveries that wait to be planned, oldest first: the fields of StoredDelivery."""
RECEIVED_ONE = RECEIVED.where(delivery.c.id == bindparam("delivery_id", type_=BigInteger))


def _next_times(*of_one: ColumnElement[bool]) -> Select[Any]:
    # Two look-ups of one index entry each: a minimum over both would read every due run.
    first = select(run.c.due_at).where(*of_one).order_by(run.c.due_at).limit(1)
    return select(
        first.where(CLAIMABLE, NOT_SUSPECT).scalar_subquery(),
        first.where(SUSPECT).scalar_subquery(),
        NEXT_RELEASE,
    )


_NEXT_TIMES = _next_times()
_NEXT_TIMES_OF_ONE = _next_times(run.c.delivery_id == bindparam("delivery_id", type_=BigInteger))


def pending(
    connection: Connection, *, received_before: datetime, due_before: datetime, limit: int
) -> list[PendingDelivery]:
    """Find deliveries that should already be in progress, in case the message that named them was lost.

    Up to `limit`, unread ones and those with a due run (a run whose lease ran out is due), the longest
    waiting first. Each delivery is named once.
    """
    unread = connection.execute(_UNREAD, {"before": received_before, "at_most": limit})
    by_id = {row.id: PendingDelivery(row.id, row.received_at, fresh=True) for row in unread}
    for delivery_id, since, attempts in connection.execute(_DUE, {"before": due_before, "at_most": limit}):
        listed = by_id.get(delivery_id)
        # A started run of it counts more than its unstarted ones: then no worker has its message any more.
        if listed is None or (listed.fresh and attempts):
            by_id[delivery_id] = PendingDelivery(delivery_id, since, fresh=not attempts)
    return sorted(by_id.values(), key=lambda delivery: (delivery.since, delivery.delivery_id))[:limit]


def newer_waiting(connection: Connection, run_id: int) -> int | None:
    """Return the newest delivery with an unfinished run behind this one in its order; None without one."""
    own, other = run.alias("own"), run.alias("other")
    query = select(func.max(other.c.delivery_id)).where(
        own.c.id == run_id,
        other.c.handler == own.c.handler,
        other.c.order_key == own.c.order_key,
        # In the words of the partial index, so that it applies.
        in_states(other.c.state, RunState.WAITING, RunState.DUE, RunState.RUNNING),
        other.c.delivery_id > own.c.delivery_id,
    )
    found: int | None = connection.execute(query).scalar_one()
    return found


def next_due_at(connection: Connection, after: datetime) -> datetime | None:
    """Return when the next run after that moment may be claimed or released; None when there is none."""
    moments = connection.execute(_NEXT, {"before": after}).one()
    return min((moment for moment in moments if moment is not None and moment > after), default=None)


def next_times(connection: Connection, only: int | None = None) -> NextTimes:
    """Return when an engine has to poll again; for the runs of one delivery if `only` names it."""
    if only is None:
        return NextTimes(*connection.execute(_NEXT_TIMES).one())
    return NextTimes(*connection.execute(_NEXT_TIMES_OF_ONE, {"delivery_id": only}).one())


def count_unfinished(connection: Connection, limit: int) -> int:
    """Count deliveries that are not finished, up to `limit`: by their partial index, never by the table."""
    unfinished = in_states(delivery.c.state, DeliveryState.RECEIVED, DeliveryState.PLANNED)
    # LIMIT inside: beyond the limit the exact number is of no use, and counting costs.
    some = select(delivery.c.id).where(unfinished).limit(limit).subquery()
    counted: int = connection.execute(select(func.count()).select_from(some)).scalar_one()
    return counted
