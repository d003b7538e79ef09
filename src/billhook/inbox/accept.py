"""Storing what came: a batch of deliveries in one transaction, each kept once per (source, key)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from billhook.inbox.clauses import among
from billhook.inbox.database import Database
from billhook.inbox.records import Incoming, Receipt, Verdict
from billhook.inbox.schema import delivery

__all__ = ["accept"]

Identity = tuple[str, str]


def accept(database: Database, batch: Sequence[Incoming]) -> list[Receipt]:
    """Commit what is new and say for each delivery what became of it, in the batch's order.

    The unique key decides, inside the database: two processes with the same delivery both get here.
    """
    first: dict[Identity, Incoming] = {}
    for incoming in batch:
        first.setdefault((incoming.source, incoming.key), incoming)
    ids = database.insert_new(list(first.values()))
    if len(ids) == len(batch):  # all new: nothing to look up
        return [
            Receipt(Verdict.ACCEPTED, delivery_id, incoming.event_type)
            for delivery_id, incoming in zip(ids, batch, strict=True)
        ]
    with database.read() as connection:
        stored = _stored(connection, list(first))
    new = set(ids)
    receipts = []
    for incoming in batch:
        identity = (incoming.source, incoming.key)
        delivery_id, event_type = stored[identity]
        if delivery_id in new and first[identity] is incoming:
            verdict = Verdict.ACCEPTED
        elif event_type == incoming.event_type:
            verdict = Verdict.DUPLICATE
        else:
            verdict = Verdict.CONFLICT
        receipts.append(Receipt(verdict, delivery_id, event_type))
    return receipts


def _stored(connection: Connection, identities: list[Identity]) -> dict[Identity, tuple[int, str]]:
    """The id and the event type under which each identity is stored."""
    found: dict[Identity, tuple[int, str]] = {}
    for source in {source for source, _ in identities}:
        keys = [key for own, key in identities if own == source]
        query = select(delivery.c.key, delivery.c.id, delivery.c.event_type).where(
            delivery.c.source == source, among(delivery.c.key, keys)
        )
        for key, delivery_id, event_type in connection.execute(query):
            found[source, key] = (delivery_id, event_type)
    return found
