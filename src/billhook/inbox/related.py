"""Find the deliveries related to one: by order key, key or content; and its neighbours in a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from billhook.inbox.deliveries import DeliverySummary, summaries
from billhook.inbox.filters import DeliveryFilter
from billhook.inbox.inbox import Inbox
from billhook.inbox.schema import delivery, run

_SEARCH_RANGE = 5_000
"""Deliveries before and after that are searched for an order key: no index has those of finished runs."""
_LIMIT = 12


@dataclass(frozen=True, slots=True)
class RelatedDelivery:
    """A delivery and how it is related: by the same key, the same content, or the order of a handler.

    `handler` and `order_key` are set for the latter.
    """

    summary: DeliverySummary
    relation: str
    handler: str | None = None
    order_key: str | None = None


def related_deliveries(
    inbox: Inbox, subject: DeliverySummary, runs: Sequence[tuple[str, str | None]]
) -> list[RelatedDelivery]:
    """Return the deliveries related to one, whose runs are pairs of handler and order key; nearest first."""
    related: dict[int, tuple[str, str | None, str | None]] = {}
    with inbox.database.read() as connection:
        same_key = select(delivery.c.id).where(
            delivery.c.source == subject.source, delivery.c.key == subject.key, delivery.c.id != subject.id
        )
        for delivery_id in connection.execute(same_key.limit(_LIMIT)).scalars():
            related[delivery_id] = ("the same key", None, None)
        if subject.twin_of is not None:
            related.setdefault(subject.twin_of, ("the same content", None, None))
        for handler, order_key in runs:
            if order_key is None:
                continue
            ordered = select(run.c.delivery_id).where(
                run.c.delivery_id.between(subject.id - _SEARCH_RANGE, subject.id + _SEARCH_RANGE),
                run.c.delivery_id != subject.id,
                run.c.handler == handler,
                run.c.order_key == order_key,
            )
            before = ordered.where(run.c.delivery_id < subject.id).order_by(run.c.delivery_id.desc())
            after = ordered.where(run.c.delivery_id > subject.id).order_by(run.c.delivery_id)
            for query in (before, after):
                for delivery_id in connection.execute(query.limit(_LIMIT)).scalars():
                    related.setdefault(delivery_id, ("the same order", handler, order_key))
    by_id = {summary.id: summary for summary in summaries(inbox, list(related))}
    near = sorted(by_id, key=lambda delivery_id: (abs(delivery_id - subject.id), delivery_id))
    return [RelatedDelivery(by_id[delivery_id], *related[delivery_id]) for delivery_id in near[:_LIMIT]]


def neighbours(inbox: Inbox, selection: DeliveryFilter, delivery_id: int) -> tuple[int | None, int | None]:
    """Return the ids of the selected that are stored just after a delivery, and just before it."""
    with inbox.database.read() as connection:
        newer = selection.ids(connection, 1, above=delivery_id, oldest_first=True)
        older = selection.ids(connection, 1, below=delivery_id)
    return next(iter(newer), None), next(iter(older), None)
