"""Webhook subscriptions: which URL receives which type of event."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from billhook.events import PingTest
from billhook.sandbox.storage.paging import ListPage, fetch_page
from billhook.sandbox.storage.tables.webhooks import delivery, subscription
from billhook.sandbox.storage.transaction import Transaction, new_id
from billhook.sandbox.webhooks import outbox

__all__ = ["cancel", "find", "page", "ping", "subscribe"]


def subscribe(
    tx: Transaction, url: str, event_type: str, threshold: Decimal | None, recurring_threshold: Decimal | None
) -> str:
    """Return the id of the subscription with this URL, type and thresholds; create it if there is none."""
    thresholds = {"threshold": threshold, "recurring_threshold": recurring_threshold}
    there = tx.connection.execute(
        select(subscription).where(
            subscription.c.callback_url == url, subscription.c.event_type == event_type
        )
    )
    for row in there:  # compared in Python: as texts in the columns, 80 and 80.0 differ
        if (row.threshold, row.recurring_threshold) == (threshold, recurring_threshold):
            return str(row.id)
    subscription_id = new_id("sub")
    tx.connection.execute(
        insert(subscription).values(
            id=subscription_id, callback_url=url, event_type=event_type, created_at=tx.now, **thresholds
        )
    )
    return subscription_id


def find(tx: Transaction, subscription_id: str) -> Row[Any] | None:
    """Return the subscription with this id; None if there is none."""
    return tx.connection.execute(select(subscription).where(subscription.c.id == subscription_id)).first()


def page(tx: Transaction, limit: int, cursor: str | None) -> ListPage[Row[Any]]:
    """Return a page of all subscriptions, oldest first."""
    order = [subscription.c.seq]
    return fetch_page(tx.connection, select(subscription), order, limit, cursor, subscription.name)


def ping(tx: Transaction, subscription_id: str, url: str) -> tuple[str, str]:
    """Send a PingTest to the URL, for any subscribed type. Returns the ids of event and delivery."""
    # only=(): the ping goes to this URL, not to the subscriptions to PingTest.
    raised_id = outbox.raise_event(tx, PingTest(), only=())
    return raised_id, outbox.enqueue(tx, raised_id, subscription_id, url)


def cancel(tx: Transaction, subscription_id: str) -> None:
    """Delete the subscription and cancel its pending deliveries; the others stay in the log."""
    tx.connection.execute(delete(subscription).where(subscription.c.id == subscription_id))
    # An attempt in progress ends as it will: `settle` leaves the state cancelled.
    tx.connection.execute(
        update(delivery)
        .where(delivery.c.subscription_id == subscription_id, delivery.c.state == "pending")
        .values(state="cancelled", due_at=None, held=False)
    )
