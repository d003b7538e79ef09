"""Deliveries that belong together: of one order key, of one key, and duplicates of one content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from billhook.inbox.admin import DeliverySummary, summaries
from billhook.inbox.inbox import Inbox
from billhook.inbox.schema import delivery, run

__all__ = ["Sibling", "siblings"]

_NEAR = 5_000
"""Deliveries before and after that are searched for an order key: no index has those of finished runs."""
_MOST = 12


@dataclass(frozen=True, slots=True)
class Sibling:
    """A delivery and how it is related: by the same key, the same content, or the order of a handler.

    `handler` and `order_key` are set for the latter.
    """

    summary: DeliverySummary
    relation: str
    handler: str | None = None
    order_key: str | None = None


def siblings(inbox: Inbox, one: DeliverySummary, runs: Sequence[tuple[str, str | None]]) -> list[Sibling]:
    """Return the deliveries related to one, whose runs are pairs of handler and order key; nearest first."""
    related: dict[int, tuple[str, str | None, str | None]] = {}
    with inbox.database.read() as connection:
        same_key = select(delivery.c.id).where(
            delivery.c.source == one.source, delivery.c.key == one.key, delivery.c.id != one.id
        )
        for delivery_id in connection.execute(same_key.limit(_MOST)).scalars():
            related[delivery_id] = ("the same key", None, None)
        if one.twin_of is not None:
            related.setdefault(one.twin_of, ("the same content", None, None))
        for handler, order_key in runs:
            if order_key is None:
                continue
            ordered = select(run.c.delivery_id).where(
                run.c.delivery_id.between(one.id - _NEAR, one.id + _NEAR),
                run.c.delivery_id != one.id,
                run.c.handler == handler,
                run.c.order_key == order_key,
            )
            before = ordered.where(run.c.delivery_id < one.id).order_by(run.c.delivery_id.desc())
            after = ordered.where(run.c.delivery_id > one.id).order_by(run.c.delivery_id)
            for query in (before, after):
                for delivery_id in connection.execute(query.limit(_MOST)).scalars():
                    related.setdefault(delivery_id, ("the same order", handler, order_key))
    found = {each.id: each for each in summaries(inbox, list(related))}
    near = sorted(found, key=lambda delivery_id: (abs(delivery_id - one.id), delivery_id))
    return [Sibling(found[delivery_id], *related[delivery_id]) for delivery_id in near[:_MOST]]
