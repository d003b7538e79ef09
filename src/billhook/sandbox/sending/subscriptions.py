"""Who asked for which events."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from billhook.events import PingTest
from billhook.sandbox.storage.paging import Page, page_of
from billhook.sandbox.storage.tables.sending import delivery, subscription
from billhook.sandbox.transaction import Transaction, new_id

__all__ = ["cancel", "find", "page", "ping", "subscribe"]


def subscribe(
    tx: Transaction, url: str, event_type: str, threshold: Decimal | None, recurring_threshold: Decimal | None
) -> str:
    """Send events of this type to this URL, from these thresholds on. Returns its id.

    What was asked for already, with the same thresholds, is that; with others it is a subscription more.
    """
    thresholds = {"threshold": threshold, "recurring_threshold": recurring_threshold}
    there = tx.connection.execute(
        select(subscription).where(
            subscription.c.callback_url == url, subscription.c.event_type == event_type
        )
    )
    for row in there:  # compared here: in their columns 80 and 80.0 are two texts
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
    """The subscription with this id."""
    return tx.connection.execute(select(subscription).where(subscription.c.id == subscription_id)).first()


def page(tx: Transaction, limit: int, cursor: str | None) -> Page[Row[Any]]:
    """A page of all, oldest first."""
    order = [subscription.c.seq]
    return page_of(tx.connection, select(subscription), order, limit, cursor, subscription.name)


def ping(tx: Transaction, subscription_id: str, url: str) -> tuple[str, str]:
    """Send a PingTest there, whatever was asked for. The ids of what was raised and of its delivery."""
    raised_id = tx.raise_event(PingTest(), only=())
    return raised_id, tx.deliver(raised_id, subscription_id, url)


def cancel(tx: Transaction, subscription_id: str) -> None:
    """Send no more there; what was delivered or failed stays in the log."""
    tx.connection.execute(delete(subscription).where(subscription.c.id == subscription_id))
    tx.connection.execute(
        update(delivery)
        .where(delivery.c.subscription_id == subscription_id, delivery.c.state == "pending")
        .values(state="cancelled", due_at=None, held=False)
    )
