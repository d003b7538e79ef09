"""Store a batch of deliveries: new ones in one statement, duplicates and conflicts by their key.

Nearly all deliveries are new, which takes one statement. Only where a key of the batch was stored already is
it looked up, and only what contradicts the stored delivery takes a second transaction.

Most schemes do not sign the event type, so an observer of a delivery can send it again under another type,
and may arrive first. The genuine delivery must not be lost for that. So a key may have several deliveries,
each in a slot of its own, and their number is fixed however many arrive:

    ""         the first delivery that named a type: the only one that is handled unattended
    TYPE       one for each known type beside the first one's
    "*"        one for all types that have no model
    "-"        one that named no type
    … + "#"    for each of these, one of the same key and type with other bytes

All but the first are quarantined. One body has at most 24 rows under any types (25 where the first type has
no model), and one without a type; every further copy is counted as a duplicate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, func, insert, select

from billhook.inbox.database import Database
from billhook.inbox.locks import lock_conflicts
from billhook.inbox.records import NewDelivery, PutStatus, Receipt
from billhook.inbox.schema import delivery
from billhook.inbox.sql import in_values
from billhook.inbox.states import DeliveryState

__all__ = ["FIRST", "SlotChoice", "SlotEntry", "choose_slot", "ingest"]

FIRST = ""
UNKNOWN = "*"
UNTYPED = "-"
OTHER_BYTES = "#"


class SlotEntry(NamedTuple):
    """A stored delivery of a key: its type as sent; `digest` is None for rows older than that column."""

    delivery_id: int
    event_type: str
    digest: bytes | None


class SlotChoice(NamedTuple):
    """The slot of a delivery among those of its key, and its status there.

    `error` and `conflict_of` are columns of the row to be stored; DUPLICATE and SURPLUS store none.
    """

    status: PutStatus
    slot: str
    error: str | None = None
    conflict_of: int | None = None


Identity = tuple[str, str]
OfKeys = defaultdict[Identity, dict[str, SlotEntry]]
"""What is stored of each key, by its slot."""

_STORED = (PutStatus.DUPLICATE, PutStatus.SURPLUS)
_KEPT = (
    delivery.c.key,
    delivery.c.slot,
    delivery.c.id,
    func.coalesce(delivery.c.sent_as, delivery.c.event_type),
    delivery.c.digest,
)


def ingest(database: Database, batch: Sequence[NewDelivery]) -> list[Receipt]:
    """Commit what is new; returns a receipt for each delivery, in the batch's order.

    The unique key decides, inside the database: two processes may store the same delivery at one time.
    """
    first: dict[Identity, NewDelivery] = {}
    for incoming in batch:
        if incoming.event_type:  # a delivery without a type is never the first: the genuine one may follow
            first.setdefault((incoming.source, incoming.key), incoming)
    ids = database.insert_new(list(first.values())) if first else ()
    if len(ids) == len(batch):  # all new: nothing to look up
        return [
            Receipt(PutStatus.ACCEPTED, delivery_id, incoming.event_type)
            for delivery_id, incoming in zip(ids, batch, strict=True)
        ]
    with database.read() as connection:
        stored = _of_keys(connection, batch)
    new = set(ids)
    receipts: dict[int, Receipt] = {}
    others: dict[int, NewDelivery] = {}
    for number, incoming in enumerate(batch):
        of_key = stored[incoming.source, incoming.key]
        found = choose_slot(of_key, incoming)
        if first.get((incoming.source, incoming.key)) is incoming and _is_among(new, of_key):
            receipts[number] = Receipt(PutStatus.ACCEPTED, of_key[FIRST].delivery_id, incoming.event_type)
        elif found.status in _STORED:
            receipts[number] = _receipt(of_key, found)
        else:
            others[number] = incoming
    if others:
        receipts |= _keep(database, others)
    return [receipts[number] for number in range(len(batch))]


def _keep(database: Database, others: dict[int, NewDelivery]) -> dict[int, Receipt]:
    """Store deliveries that are not the first of their key and, as read without a lock, no duplicates."""
    receipts = {}
    with database.write() as connection:
        lock_conflicts(connection)
        stored = _of_keys(connection, others.values())
        for number, incoming in others.items():
            of_key = stored[incoming.source, incoming.key]
            found = choose_slot(of_key, incoming)
            if found.status not in _STORED:
                delivery_id = _insert(connection, incoming, found)
                of_key[found.slot] = SlotEntry(delivery_id, incoming.event_type, incoming.digest)
            receipts[number] = _receipt(of_key, found)
    return receipts


def _insert(connection: Connection, incoming: NewDelivery, found: SlotChoice) -> int:
    # ACCEPTED here: it was a duplicate when the batch was inserted, and its first was pruned since.
    state = DeliveryState.RECEIVED if found.status is PutStatus.ACCEPTED else DeliveryState.QUARANTINED
    names = ("source", "key", "event_type", "body", "digest", "headers", "signed_at", "received_at")
    values = {name: getattr(incoming, name) for name in names}
    values |= {"slot": found.slot, "conflict_of": found.conflict_of, "error": found.error}
    row = insert(delivery).values(**values, state=state.value).returning(delivery.c.id)
    delivery_id: int = connection.execute(row).scalar_one()
    return delivery_id


def _receipt(of_key: dict[str, SlotEntry], found: SlotChoice) -> Receipt:
    here = of_key[found.slot]
    first = of_key.get(FIRST, here)
    return Receipt(found.status, here.delivery_id, first.event_type, found.conflict_of, found.error)


def _is_among(new: set[int], of_key: dict[str, SlotEntry]) -> bool:
    return FIRST in of_key and of_key[FIRST].delivery_id in new


def _of_keys(connection: Connection, batch: Iterable[NewDelivery]) -> OfKeys:
    keys: defaultdict[str, set[str]] = defaultdict(set)
    for incoming in batch:
        keys[incoming.source].add(incoming.key)
    found: OfKeys = defaultdict(dict)
    for source, of_source in keys.items():
        query = select(*_KEPT).where(
            delivery.c.source == source, in_values(delivery.c.key, sorted(of_source))
        )
        for key, slot, *facts in connection.execute(query):
            found[source, key][slot] = SlotEntry(*facts)
    return found


def choose_slot(kept: Mapping[str, SlotEntry], incoming: NewDelivery) -> SlotChoice:
    """Choose the slot of a delivery beside the stored ones of its key (`kept`, by slot)."""
    first = kept.get(FIRST)
    if not incoming.event_type:
        slot = UNTYPED
    elif first is None or first.event_type == incoming.event_type:
        slot = FIRST
    else:
        slot = incoming.event_type if incoming.known else UNKNOWN
    if slot not in kept:
        return _new(slot, first)
    if _is(kept[slot], incoming):
        return SlotChoice(PutStatus.DUPLICATE, slot)
    if kept[slot].event_type != incoming.event_type:  # a second type without a model
        return SlotChoice(PutStatus.SURPLUS, slot)
    other = slot + OTHER_BYTES
    if other not in kept:
        like = kept[slot].delivery_id
        conflict_of = like if first is None else first.delivery_id
        return SlotChoice(PutStatus.CONFLICT, other, f"content conflict with delivery {like}", conflict_of)
    return SlotChoice(PutStatus.DUPLICATE if _is(kept[other], incoming) else PutStatus.SURPLUS, other)


def _new(slot: str, first: SlotEntry | None) -> SlotChoice:
    if slot == FIRST:
        return SlotChoice(PutStatus.ACCEPTED, slot)
    if first is None:
        return SlotChoice(
            PutStatus.UNTYPED, slot, "no event type: X-Webhook-Type is missing, malformed or sent twice"
        )
    error = f"type conflict with delivery {first.delivery_id}"
    return SlotChoice(PutStatus.CONFLICT, slot, error, first.delivery_id)


def _is(kept: SlotEntry, incoming: NewDelivery) -> bool:
    return kept.event_type == incoming.event_type and kept.digest in (None, incoming.digest)
