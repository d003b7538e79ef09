"""Queries on the log of events, deliveries and attempts; resending."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, func, select, update

from billhook.sandbox.storage.paging import ListPage, fetch_page
from billhook.sandbox.storage.tables.webhooks import attempt, delivery, raised_event
from billhook.sandbox.storage.transaction import Transaction

__all__ = [
    "STATES",
    "attempts_of",
    "deliveries",
    "delivery_of",
    "pending",
    "raised_events",
    "send_again",
]

Rows = ListPage[Row[Any]]

STATES = ("pending", "delivered", "failed", "cancelled")


def deliveries(tx: Transaction, limit: int, cursor: str | None, *where: ColumnElement[bool]) -> Rows:
    """Return a page of deliveries with the type of their event, oldest first."""
    query = _deliveries().where(*where)
    return fetch_page(tx.connection, query, [delivery.c.seq], limit, cursor, delivery.name)


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
    return fetch_page(tx.connection, query, [raised_event.c.seq], limit, cursor, raised_event.name)


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
