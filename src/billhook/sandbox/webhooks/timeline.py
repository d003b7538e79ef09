"""The timeline, newest first: what happened, the events that it raised, their deliveries and attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Row, Select, func, select, type_coerce

from billhook.sandbox.storage.columns import from_microseconds
from billhook.sandbox.storage.paging import ListPage, fetch_page
from billhook.sandbox.storage.tables.webhooks import delivery, raised_event
from billhook.sandbox.storage.transaction import Transaction
from billhook.sandbox.webhooks.delivery_log import attempts_of

__all__ = [
    "DeliveryTrace",
    "EventTrace",
    "Happening",
    "count_states",
    "event_trace",
    "events_by_day",
    "timeline",
]

_MICROSECONDS_PER_DAY = 86_400_000_000
_COLUMNS = (
    raised_event.c.id,
    raised_event.c.event_type,
    raised_event.c.raised_at,
    raised_event.c.cause,
    func.length(raised_event.c.body).label("body_bytes"),
)
"""Without the body: a page of events may hold megabytes of them."""


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
    order = [raised_event.c.seq]
    page = fetch_page(tx.connection, query, order, limit, cursor, raised_event.name, newest_first=True)
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
            row.id, row.event_type, row.raised_at, row.cause, row.body_bytes,
            [DeliveryTrace(one, attempts[one.id]) for one in found[row.id]],
        )
        for row in rows
    ]  # fmt: skip
