"""How much of the log is kept: so many events, and what became of them."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select

from billhook.sandbox.storage.tables.sending import attempt, delivery, raised, strike

__all__ = ["forget_old"]


def forget_old(connection: Connection, newest: int, keep: int) -> None:
    """Forget all events but the last `keep` up to the number `newest`, with their deliveries.

    One that is still to be sent stays. It looks only once for each tenth of `keep`: so a tenth more is there
    at times, and each event costs little.
    """
    if newest % max(1, keep // 10) != 0:
        return
    to_send = select(delivery.c.seq).where(
        delivery.c.raised_id == raised.c.id, delivery.c.due_at.is_not(None)
    )
    events = select(raised.c.id).where(raised.c.seq <= newest - keep, ~to_send.exists())
    deliveries = select(delivery.c.id).where(delivery.c.raised_id.in_(events))
    connection.execute(delete(attempt).where(attempt.c.delivery_id.in_(deliveries)))
    connection.execute(delete(strike).where(strike.c.delivery_id.in_(deliveries)))
    connection.execute(delete(delivery).where(delivery.c.raised_id.in_(events)))
    connection.execute(delete(raised).where(raised.c.id.in_(events)))
