"""How much is waiting to be handled: what BILLHOOK_BACKLOG_LIMIT is held against."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from billhook.inbox.schema import delivery, run

__all__ = ["depth"]


def depth(connection: Connection, limit: int) -> int:
    """Deliveries not finished, counted up to `limit` on the partial indexes, never on the whole table."""
    unread = select(delivery.c.id).where(delivery.c.state == "received").limit(limit).subquery()
    unfinished = run.c.state.in_(("due", "running"))
    running = select(run.c.delivery_id).distinct().where(unfinished).limit(limit).subquery()
    counts = (
        select(func.count()).select_from(unread).scalar_subquery()
        + select(func.count()).select_from(running).scalar_subquery()
    )
    counted: int = connection.execute(select(counts)).scalar_one()
    return counted
