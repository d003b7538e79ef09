"""The log of events, deliveries and attempts: queries, resending, and the timeline, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Row, Select, case, func, select, type_coerce, update

from billhook.sandbox.storage.columns import from_microseconds
from billhook.sandbox.storage.repository import ListPage, fetch_page
from billhook.sandbox.storage.tables.webhooks import attempt, delivery, raised_event
from billhook.sandbox.storage.transaction import Transaction

Rows = ListPage[Row[Any]]
STATES = ("pending", "delivered", "failed", "cancelled")
_SHORT_BYTES = 16_384
_MICROSECONDS_PER_DAY = 86_400_000_000
_COLUMNS = (
    raised_event.c.id,
    raised_event.c.event_type,
    raised_event.c.raised_at,
    raised_event.c.cause,
    func.length(raised_event.c.body).label("body_bytes"),
    case((func.length(raised_event.c.body) <= _SHORT_BYTES, raised_event.c.body)).label("short_body"),
)
"""Without a long body: a page of events may hold megabytes of them."""


def deliveries(tx: Transaction, limit: int, cursor: str | None, *where: ColumnElement[bool]) -> Rows:
    """Return a page of deliveries with the type of their event, oldest first."""
    query = _deliveries().where(*where)
    return fetch_page(tx, query, limit, cursor, delivery.c.seq)


def delivery_of(tx: Transaction, delivery_id: str) -> Row[Any] | None:
    """Return one delivery with the type of its event; None if there is none."""
    return tx.connection.execute(_deliveries().where(delivery.c.id == delivery_id)).first()


def attempts_of(tx: Transaction, delivery_ids: Sequence[str]) -> dict[str, list[Row[Any]]]:
    """Return the attempts of each delivery, in the order in which they ended."""
    found: dict[str, list[Row[Any]]] = {delivery_id: [] for delivery_id in delivery_ids}
    query = select(attempt).where(attempt.c.delivery_id.in_(found)).order_by(attempt.c.seq)
    for row in tx.connection.execute(query):
        found[row.delivery_id].append(row)
    return found


def raised_events(tx: Transaction, limit: int, cursor: str | None, *where: ColumnElement[bool]) -> Rows:
    """Return a page of events, oldest first."""
    query = select(raised_event).where(*where)
    return fetch_page(tx, query, limit, cursor, raised_event.c.seq)


def pending(tx: Transaction) -> tuple[int, datetime | None]:
    """Return the number of unsent deliveries, and when the first of them is due."""
    query = select(func.count(), func.min(delivery.c.due_at)).where(delivery.c.due_at.is_not(None))
    number, due_at = tx.connection.execute(query).one()
    return number, due_at


def send_again(tx: Transaction, delivery_id: str) -> None:
    """Make a delivery due now, under the same id, with the whole schedule of retries."""
    tx.connection.execute(
        update(delivery)
        .where(delivery.c.id == delivery_id)
        # attempts=0 restarts the schedule; the log still numbers its attempts on.
        .values(state="pending", attempts=0, due_at=tx.real_now, held=False)
    )
    tx.enqueued = True


def _deliveries() -> Select[Any]:
    return select(delivery, raised_event.c.event_type).join(
        raised_event, raised_event.c.id == delivery.c.raised_id
    )


@dataclass(frozen=True, slots=True)
class DeliveryTrace:
    """A delivery with its attempts, oldest first: rows of the tables `delivery` and `attempt`."""

    delivery: Row[Any]
    attempts: Sequence[Row[Any]]


@dataclass(frozen=True, slots=True)
class EventTrace:
    """An event with its deliveries, oldest first. `raised_at` is the sandbox's time."""

    id: str
    event_type: str
    raised_at: datetime
    cause: str
    body_bytes: int
    body: bytes | None
    """None for a long one."""
    deliveries: Sequence[DeliveryTrace]


@dataclass(frozen=True, slots=True)
class Happening:
    """What one cause raised at one moment: the operation or job, and its events, oldest first."""

    cause: str
    at: datetime
    events: Sequence[EventTrace]


def timeline(
    tx: Transaction, limit: int, cursor: str | None, *where: ColumnElement[bool]
) -> ListPage[Happening]:
    """Return what raised the newest `limit` events that match, after `cursor`; the total counts events.

    What has more events than are left of a page is continued on the next one.
    """
    query = select(*_COLUMNS).where(*where)
    page = fetch_page(tx, query, limit, cursor, raised_event.c.seq, newest_first=True)
    traces = _traces(tx, page.items)
    happenings = [
        Happening(cause, at, list(events)[::-1])
        for (cause, at), events in groupby(traces, key=lambda one: (one.cause, one.raised_at))
    ]
    return ListPage(happenings, page.total, page.next_cursor)


def event_trace(tx: Transaction, event_id: str) -> tuple[EventTrace, bytes] | None:
    """Return an event and its body; None if there is no such event."""
    query: Select[Any] = select(*_COLUMNS, raised_event.c.body).where(raised_event.c.id == event_id)
    rows: Sequence[Row[Any]] = tx.connection.execute(query).all()
    return (_traces(tx, rows)[0], bytes(rows[0].body)) if rows else None


def count_states(tx: Transaction) -> dict[str, int]:
    """Return the number of deliveries in each state that has some."""
    query = select(delivery.c.state, func.count()).group_by(delivery.c.state).order_by(delivery.c.state)
    return {row[0]: row[1] for row in tx.connection.execute(query)}


def events_by_day(tx: Transaction, since: datetime) -> dict[date, int]:
    """Return the number of events raised on each day in UTC that has some, from `since` on."""
    day = type_coerce(raised_event.c.raised_at, BigInteger) // _MICROSECONDS_PER_DAY
    query = select(day, func.count()).where(raised_event.c.raised_at >= since).group_by(day)
    rows = tx.connection.execute(query)
    return {from_microseconds(int(row[0]) * _MICROSECONDS_PER_DAY).date(): row[1] for row in rows}


def _traces(tx: Transaction, rows: Sequence[Row[Any]]) -> list[EventTrace]:
    # One query for the deliveries of all events, and one for the attempts of all deliveries.
    found: dict[str, list[Row[Any]]] = {row.id: [] for row in rows}
    query = select(delivery).where(delivery.c.raised_id.in_(found)).order_by(delivery.c.seq)
    for one in tx.connection.execute(query):
        found[one.raised_id].append(one)
    attempts = attempts_of(tx, [one.id for each in found.values() for one in each])
    return [
        EventTrace(
            row.id, row.event_type, row.raised_at, row.cause, row.body_bytes, row.short_body,
            [DeliveryTrace(one, attempts[one.id]) for one in found[row.id]],
        )
        for row in rows
    ]  # fmt: skip
