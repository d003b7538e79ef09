"""Credit pools: an effect that adds up, and so must not happen twice."""

from __future__ import annotations

from decimal import Decimal

from billhook import Delivery, Handlers
from billhook.events import CreditPoolIncreased
from billing.database import transaction

handlers = Handlers()


@handlers.on(CreditPoolIncreased)
def add_credit(event: CreditPoolIncreased, delivery: Delivery) -> None:
    """Adding twice is wrong, and a handler may run twice: `once` is True the first time only.

    Its note and the new balance are one transaction: both are kept, or neither.
    """
    with transaction() as connection:
        if not delivery.once(connection):
            return
        row = connection.execute(
            "SELECT balance FROM credit WHERE pool = ?", (event.credit_pool_id,)
        ).fetchone()
        balance = (Decimal(row[0]) if row else Decimal(0)) + event.granted_amount
        connection.execute(
            "INSERT INTO credit VALUES (?, ?) ON CONFLICT (pool) DO UPDATE SET balance = excluded.balance",
            (event.credit_pool_id, str(balance)),
        )
