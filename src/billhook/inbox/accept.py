"""Storing what came: one transaction for a batch of deliveries, each row kept once per (source, key)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from billhook.inbox.records import Incoming, Receipt, Verdict
from billhook.inbox.schema import delivery
from billhook.inbox.states import DeliveryState

__all__ = ["accept"]

# The unique key decides, inside the database: two processes with the same delivery both get here.
_INSERTS = {
    dialect.__name__.rsplit(".", 1)[-1]: dialect.insert(delivery)
    .on_conflict_do_nothing(index_elements=["source", "key"])
    .returning(delivery.c.id, delivery.c.source, delivery.c.key)
    for dialect in (sqlite, postgresql)
}


def accept(connection: Connection, batch: Sequence[Incoming]) -> list[Receipt]:
    """Insert what is new and say for each what became of it, in the batch's order."""
    first: dict[tuple[str, str], Incoming] = {}
    for incoming in batch:
        first.setdefault((incoming.source, incoming.key), incoming)
    rows = [
        {
            "source": incoming.source,
            "key": incoming.key,
            "event_type": incoming.event_type,
            "body": incoming.body,
            "headers": incoming.headers,
            "state": DeliveryState.RECEIVED.value,
            "signed_at": incoming.signed_at,
            "received_at": incoming.received_at,
        }
        for incoming in first.values()
    ]
    inserted = connection.execute(_INSERTS[connection.dialect.name], rows)
    new = {(source, key): delivery_id for delivery_id, source, key in inserted}
    stored = {identity: (new[identity], first[identity].event_type) for identity in new}
    stored.update(_already_there(connection, [identity for identity in first if identity not in new]))
    return [_receipt(incoming, stored, new, first) for incoming in batch]


def _already_there(
    connection: Connection, identities: list[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, str]]:
    if not identities:
        return {}
    rows = connection.execute(
        select(delivery.c.source, delivery.c.key, delivery.c.id, delivery.c.event_type).where(
            tuple_(delivery.c.source, delivery.c.key).in_(identities)
        )
    )
    return {(source, key): (delivery_id, event_type) for source, key, delivery_id, event_type in rows}


def _receipt(
    incoming: Incoming,
    stored: dict[tuple[str, str], tuple[int, str]],
    new: dict[tuple[str, str], int],
    first: dict[tuple[str, str], Incoming],
) -> Receipt:
    identity = (incoming.source, incoming.key)
    delivery_id, event_type = stored[identity]
    if identity in new and first[identity] is incoming:
        verdict = Verdict.ACCEPTED
    elif event_type == incoming.event_type:
        verdict = Verdict.DUPLICATE
    else:
        verdict = Verdict.CONFLICT
    return Receipt(verdict, delivery_id, event_type)
