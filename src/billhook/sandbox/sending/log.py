"""Reading what was raised, what became of each delivery, and who asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, func, select, update

from billhook.sandbox.storage.paging import Page, page_of
from billhook.sandbox.storage.tables.sending import attempt, delivery, raised
from billhook.sandbox.transaction import Transaction

__all__ = [
    "STATES",
    "attempts_of",
    "deliveries",
    "delivery_of",
    "pending",
    "raised_events",
    "send_again",
]

Rows = Page[Row[Any]]

STATES = ("pending", "delivered", "failed", "cancelled")


def deliveries(tx: Transaction, limit: int, cursor: str | None, *where: ColumnElement[bool]) -> Rows:
    """Deliveries with the type of their event, oldest first."""
    query = _deliveries().where(*where)
    return page_of(tx.connection, query, [delivery.c.seq], limit, cursor, delivery.name)


def delivery_of(tx: Transaction, delivery_id: str) -> Row[Any] | None:
    """One delivery with the type of its event."""
    return tx.connection.execute(_deliveries().where(delivery.c.id == delivery_id)).first()


def attempts_of(tx: Transaction, delivery_ids: Sequence[str]) -> dict[str, list[Row[Any]]]:
    """The attempts of each, in the order in which they ended."""
    found: dict[str, list[Row[Any]]] = {delivery_id: [] for delivery_id in delivery_ids}
    query = select(attempt).where(attempt.c.delivery_id.in_(found)).order_by(attempt.c.seq)
    for row in tx.connection.execute(query):
        found[row.delivery_id].append(row)
    return found


def raised_events(tx: Transaction, limit: int, cursor: str | None, *where: ColumnElement[bool]) -> Rows:
    """What was raised, oldest first."""
    query = select(raised).where(*where)
    return page_of(tx.connection, query, [raised.c.seq], limit, cursor, raised.name)


def pending(tx: Transaction) -> tuple[int, datetime | None]:
    """How many deliveries are still to be sent, and when the first of them is due."""
    query = select(func.count(), func.min(delivery.c.due_at)).where(delivery.c.due_at.is_not(None))
    number, due_at = tx.connection.execute(query).one()
    return number, due_at


def send_again(tx: Transaction, delivery_id: str) -> None:
    """Send it now, under its own id, with the whole schedule before it."""
    tx.connection.execute(
        update(delivery)
        .where(delivery.c.id == delivery_id)
        .values(state="pending", attempts=0, due_at=tx.real_now, held=False)
    )
    tx.raised.append(delivery_id)


def _deliveries() -> Select[Any]:
    return select(delivery, raised.c.event_type).join(raised, raised.c.id == delivery.c.raised_id)
