"""Read the bodies of many deliveries: those of some types, or those that have a part in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import or_, select

from billhook.inbox.deliveries import id_batches
from billhook.inbox.filters import DeliveryFilter
from billhook.inbox.inbox import Inbox
from billhook.inbox.schema import delivery
from billhook.inbox.sql import in_values, position_of

_READ_TOGETHER = 500
BATCH = 2_000
"""How many bodies are searched by one statement: among a million, ten times fewer take twice as long."""


class ReadBody(NamedTuple):
    """The body of a delivery, with its type and its stored state."""

    delivery_id: int
    event_type: str
    state: str
    body: bytes


def read_bodies(inbox: Inbox, event_types: Collection[str], since: datetime) -> Iterator[ReadBody]:
    """Yield the bodies of deliveries of these types received since then, oldest first.

    A batch is in memory at a time, and no transaction is open while the caller works.
    """
    columns = (delivery.c.id, delivery.c.event_type, delivery.c.state, delivery.c.body)
    chosen = select(*columns).where(
        in_values(delivery.c.event_type, sorted(event_types)), delivery.c.received_at >= since
    )
    after = 0
    while True:
        with inbox.database.read() as connection:
            rows = connection.execute(
                chosen.where(delivery.c.id > after).order_by(delivery.c.id).limit(_READ_TOGETHER)
            ).all()
        yield from (ReadBody(*row) for row in rows)
        if len(rows) < _READ_TOGETHER:
            return
        after = rows[-1].id


@dataclass(slots=True)
class BodySearch:
    """What a search of bodies found: ids of deliveries, `unsure` are those whose bodies could not be read."""

    found: list[int] = field(default_factory=list)
    unsure: list[int] = field(default_factory=list)
    searched: int = 0


def search_bodies(
    inbox: Inbox,
    selection: DeliveryFilter,
    parts: Sequence[bytes],
    examine: Callable[[str, bytes], bool | None],
    progress: Callable[[int], object] = lambda number: None,
) -> BodySearch:
    """Search the bodies of the selected deliveries, oldest first, a batch in memory at a time.

    A body that has one of the `parts` is given to `examine` with its type: True for a match, False for none,
    None if that cannot be said. Only what is stored as it begins is searched. `progress` is called with the
    number of each batch.
    """
    result = BodySearch()
    has_part = or_(*(position_of(part, delivery.c.body) > 0 for part in parts))
    columns = (delivery.c.id, delivery.c.event_type, delivery.c.body)
    for batch in id_batches(inbox, selection, BATCH):
        query = select(*columns).where(in_values(delivery.c.id, batch), has_part).order_by(delivery.c.id)
        with inbox.database.read() as connection:
            rows = connection.execute(query).all()
        for row in rows:
            verdict = examine(row.event_type, row.body)
            if verdict is not False:
                (result.unsure if verdict is None else result.found).append(row.id)
        result.searched += len(batch)
        progress(len(batch))
    return result
