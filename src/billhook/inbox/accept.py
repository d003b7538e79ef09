"""Storing what came: a batch of deliveries in one transaction, each kept once.

What is new takes one statement, which is the way of nearly all. Only where a key of the batch was stored
already is it looked up, and only what contradicts the stored one takes a second transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, func, insert, select

from billhook.inbox.clauses import among
from billhook.inbox.database import Database
from billhook.inbox.locks import lock_conflicts
from billhook.inbox.records import Incoming, Receipt, Verdict
from billhook.inbox.schema import delivery
from billhook.inbox.slots import FIRST, Kept, Place, place
from billhook.inbox.states import DeliveryState

__all__ = ["accept"]

Identity = tuple[str, str]
OfKeys = defaultdict[Identity, dict[str, Kept]]
"""What is stored of each key, by its slot."""

_STORED = (Verdict.DUPLICATE, Verdict.SURPLUS)
_KEPT = (
    delivery.c.key,
    delivery.c.slot,
    delivery.c.id,
    func.coalesce(delivery.c.sent_as, delivery.c.event_type),
    delivery.c.digest,
)


def accept(database: Database, batch: Sequence[Incoming]) -> list[Receipt]:
    """Commit what is new and say for each delivery what became of it, in the batch's order.

    The unique key decides, inside the database: two processes with the same delivery both get here.
    """
    first: dict[Identity, Incoming] = {}
    for incoming in batch:
        if incoming.event_type:  # what names no type is nobody's first: the genuine one may come after it
            first.setdefault(_identity(incoming), incoming)
    ids = database.insert_new(list(first.values())) if first else ()
    if len(ids) == len(batch):  # all new: nothing to look up
        return [
            Receipt(Verdict.ACCEPTED, delivery_id, incoming.event_type)
            for delivery_id, incoming in zip(ids, batch, strict=True)
        ]
    with database.read() as connection:
        stored = _of_keys(connection, batch)
    new = set(ids)
    receipts: dict[int, Receipt] = {}
    others: dict[int, Incoming] = {}
    for number, incoming in enumerate(batch):
        of_key = stored[_identity(incoming)]
        found = place(of_key, incoming)
        if first.get(_identity(incoming)) is incoming and _is_among(new, of_key):
            receipts[number] = Receipt(Verdict.ACCEPTED, of_key[FIRST].delivery_id, incoming.event_type)
        elif found.verdict in _STORED:
            receipts[number] = _receipt(of_key, found)
        else:
            others[number] = incoming
    if others:
        receipts |= _keep(database, others)
    return [receipts[number] for number in range(len(batch))]


def _keep(database: Database, others: dict[int, Incoming]) -> dict[int, Receipt]:
    """Store what is no first of its key, and no duplicate as far as was seen without a lock."""
    receipts = {}
    with database.write() as connection:
        lock_conflicts(connection)
        stored = _of_keys(connection, others.values())
        for number, incoming in others.items():
            of_key = stored[_identity(incoming)]
            found = place(of_key, incoming)
            if found.verdict not in _STORED:
                delivery_id = _insert(connection, incoming, found)
                of_key[found.slot] = Kept(delivery_id, incoming.event_type, incoming.digest)
            receipts[number] = _receipt(of_key, found)
    return receipts


def _insert(connection: Connection, incoming: Incoming, found: Place) -> int:
    # One that is accepted here was a duplicate when the batch was written, and its first is gone since.
    state = DeliveryState.RECEIVED if found.verdict is Verdict.ACCEPTED else DeliveryState.QUARANTINED
    names = ("source", "key", "event_type", "body", "digest", "headers", "signed_at", "received_at")
    values = {name: getattr(incoming, name) for name in names}
    values |= {"slot": found.slot, "conflict_of": found.conflict_of, "error": found.error}
    row = insert(delivery).values(**values, state=state.value).returning(delivery.c.id)
    delivery_id: int = connection.execute(row).scalar_one()
    return delivery_id


def _receipt(of_key: dict[str, Kept], found: Place) -> Receipt:
    here = of_key[found.slot]
    first = of_key.get(FIRST, here)
    return Receipt(found.verdict, here.delivery_id, first.event_type, found.conflict_of, found.error)


def _identity(incoming: Incoming) -> Identity:
    return incoming.source, incoming.key


def _is_among(new: set[int], of_key: dict[str, Kept]) -> bool:
    return FIRST in of_key and of_key[FIRST].delivery_id in new


def _of_keys(connection: Connection, batch: Iterable[Incoming]) -> OfKeys:
    keys: defaultdict[str, set[str]] = defaultdict(set)
    for incoming in batch:
        keys[incoming.source].add(incoming.key)
    found: OfKeys = defaultdict(dict)
    for source, of_source in keys.items():
        query = select(*_KEPT).where(delivery.c.source == source, among(delivery.c.key, sorted(of_source)))
        for key, slot, *facts in connection.execute(query):
            found[source, key][slot] = Kept(*facts)
    return found
