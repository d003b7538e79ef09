"""Store a batch of deliveries: new ones in one statement, duplicates and conflicts by their key.

Nearly all deliveries are new, which takes one statement. Only where a key of the batch was stored already is
it looked up, and only what contradicts the stored delivery takes a second transaction.

Most schemes do not sign the event type, so an observer of a delivery can send it again under another type,
and may arrive first. The genuine delivery must not be lost for that. So a key may have several deliveries,
each a variant of its own, and for one body their number is fixed however many arrive:

    ""             the first delivery that named a type: the only one that is handled unattended
    TYPE           one for each known type beside the first one's
    "*"            one for all types that have no model; its error names the others
    "-"            one that named no type
    … + "#DIGEST"  for each of these, one for each of the other bodies: only who has the secret can make those

A delivery whose type is in its body is the first of its key under any type: the type is signed as the bytes
are, so no other type of the same bytes can come, and they are a duplicate before and after it is read.

All but the first are quarantined. One body has at most 24 rows under any types (25 where the first type has
no model), and one without a type; every further copy is counted as a duplicate.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, insert, select, update

from billhook.inbox.counting.counts import OTHER_TYPES, Counted, Counts
from billhook.inbox.tables.database import Database
from billhook.inbox.tables.locks import lock_conflicts
from billhook.inbox.tables.records import NEW_COLUMNS, NewDelivery, PutStatus, Receipt
from billhook.inbox.tables.schema import delivery
from billhook.inbox.tables.sql import in_values
from billhook.inbox.tables.states import DeliveryState

FIRST = ""
UNKNOWN = "*"
UNTYPED = "-"
OTHER_BYTES = "#"
NAMES_LENGTH = 500
"""How long the error of a delivery gets by names of further types."""


class StoredVariant(NamedTuple):
    """A stored delivery of a key: its type as sent; `digest` is None if it was erased.

    With a `type_field` its type is in the body, and perhaps not read yet. `also_sent_as` is a JSON list of
    the further types that its error names.
    """

    delivery_id: int
    event_type: str
    digest: bytes | None
    error: str | None = None
    type_field: str | None = None
    also_sent_as: str | None = None


class VariantChoice(NamedTuple):
    """The variant of a delivery among those of its key, and its status there.

    `error`, `conflict_of` and `also_sent_as` are columns of the row to be stored, or of the one that has the
    variant already and is to name a further type; DUPLICATE and SURPLUS store nothing.
    """

    status: PutStatus
    variant: str
    error: str | None = None
    conflict_of: int | None = None
    also_sent_as: str | None = None


Identity = tuple[str, str]
OfKeys = defaultdict[Identity, dict[str, StoredVariant]]
"""What is stored of each key, by its variant."""

_COUNTED = {PutStatus.CONFLICT: Counted.CONFLICT, PutStatus.UNTYPED: Counted.UNTYPED}
_STORED = (PutStatus.DUPLICATE, PutStatus.SURPLUS)
_ENTRY = (
    delivery.c.key,
    delivery.c.variant,
    delivery.c.id,
    func.coalesce(delivery.c.sent_as, delivery.c.event_type),
    delivery.c.digest,
    delivery.c.error,
    delivery.c.type_field,
    delivery.c.also_sent_as,
)


def ingest(database: Database, batch: Sequence[NewDelivery]) -> list[Receipt]:
    """Commit what is new; returns a receipt for each delivery, in the batch's order.

    The unique key decides, inside the database: two processes may store the same delivery at one time.
    """
    first: dict[Identity, NewDelivery] = {}
    for new in batch:
        # A delivery without a type is never the first: the genuine one may follow.
        if new.event_type or new.type_field is not None:
            first.setdefault((new.source, new.key), new)
    ids = database.insert_new(list(first.values())) if first else ()
    if len(ids) == len(batch):  # all new: nothing to look up
        return [
            Receipt(PutStatus.ACCEPTED, delivery_id, new.event_type)
            for delivery_id, new in zip(ids, batch, strict=True)
        ]
    # Without a lock: most of the others are duplicates, and nothing is written for those.
    with database.read(storing=True) as connection:
        stored = _of_keys(connection, batch)
    new_ids = set(ids)
    receipts: dict[int, Receipt] = {}
    others: dict[int, NewDelivery] = {}
    for number, new in enumerate(batch):
        of_key = stored[new.source, new.key]
        choice = choose_variant(of_key, new)
        # By identity: of two equal deliveries in one batch, one is accepted and the other its duplicate.
        is_first = first.get((new.source, new.key)) is new
        if is_first and FIRST in of_key and of_key[FIRST].delivery_id in new_ids:
            receipts[number] = Receipt(PutStatus.ACCEPTED, of_key[FIRST].delivery_id, new.event_type)
        elif choice.status in _STORED:
            receipts[number] = _receipt(of_key, choice)
        else:
            others[number] = new
    if others:
        receipts |= _store_others(database, others)
    return [receipts[number] for number in range(len(batch))]


def _store_others(database: Database, others: dict[int, NewDelivery]) -> dict[int, Receipt]:
    """Store deliveries that are not the first of their key and, as read without a lock, no duplicates."""
    receipts = {}
    counts = Counts()
    with database.write(storing=True) as connection:
        lock_conflicts(connection)
        # Read again under the lock: another process may have stored the variant since.
        stored = _of_keys(connection, others.values())
        for number, new in others.items():
            of_key = stored[new.source, new.key]
            choice = choose_variant(of_key, new)
            if choice.status not in _STORED:
                if choice.variant in of_key:
                    here = of_key[choice.variant]
                    filled = update(delivery).where(delivery.c.id == here.delivery_id)
                    connection.execute(filled.values(error=choice.error, also_sent_as=choice.also_sent_as))
                else:
                    delivery_id = _insert(connection, new, choice)
                    here = StoredVariant(delivery_id, new.event_type, new.digest, None, new.type_field)
                of_key[choice.variant] = here._replace(error=choice.error, also_sent_as=choice.also_sent_as)
            receipts[number] = _receipt(of_key, choice)
            if choice.status in _COUNTED:
                event_type = new.event_type if new.known else OTHER_TYPES
                counts.add(
                    _COUNTED[choice.status],
                    new.received_at,
                    source=new.source,
                    event_type=event_type if new.event_type else "",
                )
        counts.write(connection)
    return receipts


def _insert(connection: Connection, new: NewDelivery, choice: VariantChoice) -> int:
    # ACCEPTED here: it was a duplicate when the batch was inserted, and its first was pruned since.
    state = DeliveryState.RECEIVED if choice.status is PutStatus.ACCEPTED else DeliveryState.QUARANTINED
    values: dict[str, Any] = {name: getattr(new, name) for name in NEW_COLUMNS}
    values |= {"variant": choice.variant, "conflict_of": choice.conflict_of, "error": choice.error}
    row = insert(delivery).values(**values, state=state.value).returning(delivery.c.id)
    delivery_id: int = connection.execute(row).scalar_one()
    return delivery_id


def _receipt(of_key: dict[str, StoredVariant], choice: VariantChoice) -> Receipt:
    here = of_key[choice.variant]
    first = of_key.get(FIRST, here)
    return Receipt(choice.status, here.delivery_id, first.event_type, choice.conflict_of, choice.error)


def _of_keys(connection: Connection, batch: Iterable[NewDelivery]) -> OfKeys:
    keys: defaultdict[str, set[str]] = defaultdict(set)
    for new in batch:
        keys[new.source].add(new.key)
    stored: OfKeys = defaultdict(dict)
    for source, of_source in keys.items():
        query = select(*_ENTRY).where(
            delivery.c.source == source, in_values(delivery.c.key, sorted(of_source))
        )
        for key, variant, *entry in connection.execute(query):
            stored[source, key][variant] = StoredVariant(*entry)
    return stored


def choose_variant(stored: Mapping[str, StoredVariant], new: NewDelivery) -> VariantChoice:
    """Choose the variant of a new delivery beside the stored ones of its key, by variant."""
    first = stored.get(FIRST)
    # Where one of the two has its type in the body, the bytes decide: it has one type, and that is in them.
    by_bytes = new.type_field is not None or (first is not None and first.type_field is not None)
    if by_bytes:
        variant = FIRST
    elif not new.event_type:
        variant = UNTYPED
    elif first is None or first.event_type == new.event_type:
        variant = FIRST
    else:
        variant = new.event_type if new.known else UNKNOWN
    if variant not in stored:
        return _new_variant(variant, first, new)
    # Compared by digest, not by bytes: the body of a pruned delivery is gone.
    if stored[variant].digest not in (None, new.digest):
        like = stored[variant].delivery_id
        variant += OTHER_BYTES + new.digest.hex()
        if variant not in stored:
            conflict_of = like if first is None else first.delivery_id
            return VariantChoice(
                PutStatus.CONFLICT, variant, f"content conflict with delivery {like}", conflict_of
            )
    if by_bytes or stored[variant].event_type == new.event_type:
        return VariantChoice(PutStatus.DUPLICATE, variant)
    return _further_type(stored[variant], variant, first, new.event_type)


def _further_type(
    stored: StoredVariant, variant: str, first: StoredVariant | None, event_type: str
) -> VariantChoice:
    """Choose for known bytes under a further type without a model: its name is added to the row's error."""
    if stored.error is None:  # an operator had it planned
        return VariantChoice(PutStatus.SURPLUS, variant)
    named: list[str] = json.loads(stored.also_sent_as or "[]")
    if event_type in named:
        return VariantChoice(PutStatus.DUPLICATE, variant)
    error = stored.error + (f", {event_type}" if named else f"; also sent as {event_type}")
    if len(error) > NAMES_LENGTH:
        return VariantChoice(PutStatus.SURPLUS, variant)
    conflict_of = (first or stored).delivery_id
    return VariantChoice(PutStatus.CONFLICT, variant, error, conflict_of, json.dumps([*named, event_type]))


def _new_variant(variant: str, first: StoredVariant | None, new: NewDelivery) -> VariantChoice:
    if variant == FIRST:
        return VariantChoice(PutStatus.ACCEPTED, variant)
    if first is None:
        return VariantChoice(PutStatus.UNTYPED, variant, new.untyped)
    error = f"type conflict with delivery {first.delivery_id}"
    return VariantChoice(PutStatus.CONFLICT, variant, error, first.delivery_id)
