"""Which deliveries of one key are kept beside the first: a fixed number, however many come.

The event type is not signed by most schemes, so whoever sees a delivery can send it again under another
type, and may be the first to arrive. The genuine one must not be lost for that. So of a key there may be,
each in a slot of its own:

    ""         the first delivery that named a type: the only one that is handled unattended
    TYPE       one for each known type beside the first one's
    "*"        one for all types that have no model
    "-"        one that named no type
    … + "#"    for each of these, one of the same key and type with other bytes

All but the first are quarantined. Of one body there are 24 rows at most under any types (25 where the first
type has no model), and one without a type; whatever else comes is counted as a duplicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from billhook.inbox.records import Incoming, Verdict

__all__ = ["FIRST", "Kept", "Place", "place"]

FIRST = ""
UNKNOWN = "*"
UNTYPED = "-"
OTHER_BYTES = "#"


class Kept(NamedTuple):
    """A stored delivery of a key. `event_type` is as it came, `digest` None if nobody knows its bytes."""

    delivery_id: int
    event_type: str
    digest: bytes | None


class Place(NamedTuple):
    """Where a delivery belongs among those of its key, and what it is there.

    `error` and `conflict_of` are those of the row that is to be stored; DUPLICATE and SURPLUS need none.
    """

    verdict: Verdict
    slot: str
    error: str | None = None
    conflict_of: int | None = None


def place(kept: Mapping[str, Kept], incoming: Incoming) -> Place:
    """Find the place of a delivery beside those that are stored of its key, by slot."""
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
        return Place(Verdict.DUPLICATE, slot)
    if kept[slot].event_type != incoming.event_type:  # a second type that nobody knows
        return Place(Verdict.SURPLUS, slot)
    other = slot + OTHER_BYTES
    if other not in kept:
        like = kept[slot].delivery_id
        conflict_of = like if first is None else first.delivery_id
        return Place(Verdict.CONFLICT, other, f"content conflict with delivery {like}", conflict_of)
    return Place(Verdict.DUPLICATE if _is(kept[other], incoming) else Verdict.SURPLUS, other)


def _new(slot: str, first: Kept | None) -> Place:
    if slot == FIRST:
        return Place(Verdict.ACCEPTED, slot)
    if first is None:
        return Place(
            Verdict.UNTYPED, slot, "no event type: X-Webhook-Type is missing, malformed or sent twice"
        )
    error = f"type conflict with delivery {first.delivery_id}"
    return Place(Verdict.CONFLICT, slot, error, first.delivery_id)


def _is(kept: Kept, incoming: Incoming) -> bool:
    return kept.event_type == incoming.event_type and kept.digest in (None, incoming.digest)
