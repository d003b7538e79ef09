"""Find the deliveries related to one, and its neighbours in a list; read and search the bodies of many.

Two deliveries are related by order key, key or content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, or_, select

from billhook.inbox.counting.retention import EMPTY
from billhook.inbox.inbox import Inbox
from billhook.inbox.reading.deliveries import DeliverySummary, id_batches, summaries
from billhook.inbox.running.filters import TYPE_IS_UNREAD, DeliveryFilter, body_has
from billhook.inbox.running.unread import STORED_COLUMNS
from billhook.inbox.tables.records import StoredDelivery
from billhook.inbox.tables.schema import delivery, run
from billhook.inbox.tables.sql import in_states, in_values

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


_READ_TOGETHER = 500
BATCH = 2_000
"""How many bodies are searched by one statement: among a million, ten times fewer take twice as long."""


class ReadBody(NamedTuple):
    """The body of a delivery, with its type and its stored state."""

    delivery_id: int
    event_type: str
    state: str
    body: bytes
    type_field: str | None = None
    """Where the type is in the body. If `event_type` is empty too, no worker has read it there yet."""


def read_bodies(inbox: Inbox, event_types: Collection[str], since: datetime) -> Iterator[ReadBody]:
    """Yield the bodies of deliveries of these types received since then, oldest first.

    Deliveries whose type is in the body and unread are yielded too: they may be of these types. A batch is in
    memory at a time, and no transaction is open while the caller works.
    """
    columns = (
        *(delivery.c.id, delivery.c.event_type, delivery.c.state, delivery.c.body),
        delivery.c.type_field,
    )
    chosen = select(*columns).where(
        or_(in_values(delivery.c.event_type, sorted(event_types)), TYPE_IS_UNREAD),
        delivery.c.received_at >= since,
    )
    after = 0
    while True:
        rows = inbox.fetch(chosen.where(delivery.c.id > after).order_by(delivery.c.id).limit(_READ_TOGETHER))
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
    has_part = body_has(parts)
    columns = (delivery.c.id, delivery.c.event_type, delivery.c.body)
    for batch in id_batches(inbox, selection, BATCH):
        query = select(*columns).where(in_values(delivery.c.id, batch), has_part).order_by(delivery.c.id)
        for row in inbox.fetch(query):
            verdict = examine(row.event_type, row.body)
            if verdict is not False:
                (result.unsure if verdict is None else result.found).append(row.id)
        result.searched += len(batch)
        progress(len(batch))
    return result


def newest_deliveries(inbox: Inbox, most: int, most_bytes: int) -> list[StoredDelivery]:
    """Return the newest deliveries with their bodies: `most` at most, with `most_bytes` at most."""
    size = func.length(delivery.c.body)
    found = select(delivery.c.id, size.label("size")).where(
        ~in_states(delivery.c.state, *EMPTY), ~TYPE_IS_UNREAD, size <= most_bytes
    )
    newest = found.order_by(delivery.c.id.desc()).limit(most).subquery().c
    # With the bytes of all that are newer: no body is read that would be too many.
    sums = func.sum(newest.size).over(order_by=newest.id.desc()).label("bytes")
    with_sums = select(newest.id, sums).subquery()
    query = select(*STORED_COLUMNS).join(with_sums, with_sums.c.id == delivery.c.id)
    query = query.where(with_sums.c.bytes <= most_bytes).order_by(delivery.c.id.desc())
    return [StoredDelivery(*row) for row in inbox.fetch(query)]
