"""Choose from a backlog of deliveries that wait to be planned: the first of each type in turn.

A backlog of one type holds up no other. The deliveries of a source that must be planned in the order of
receipt are a queue: those of one type; of all types that an ordered handler gets; and where a type is in the
body, and not read yet, of all types that any ordered handler gets. What is read of a queue is always its
beginning.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Integer, Text, TextualSelect, bindparam

from billhook.inbox.running.handler_lists import EVERY_TYPE, TypeFilter
from billhook.inbox.tables.records import StoredDelivery
from billhook.inbox.tables.schema import UNREAD, delivery
from billhook.inbox.tables.sql import TextOfTables, words

STORED_COLUMNS = [delivery.c.id, *(delivery.c[name] for name in StoredDelivery._fields[1:])]
"""In the order of StoredDelivery's fields."""
MOST_OF_EACH = 10
"""Deliveries of one type that a batch takes in turn, at most; the rest of the batch are the oldest."""
_START = ("", "")
"""Before all types and sources."""
LAST_ID = 2**63 - 1
QueueOf = Callable[[str], int | None]
"""Returns the number of the queue of an event type; None for one without an ordered handler."""

# At most three look-ups in the index for each row that it finds, however many wait. Not one that compares the
# three columns at once, for which SQLite reads all of a type.
_FIRST = """(
    SELECT id FROM $delivery WHERE {unread} AND {behind} ORDER BY event_type, source, id LIMIT 1
)"""
_OF_TYPE = "event_type = found.event_type AND"
_BEHIND = (
    f"{_OF_TYPE} source = found.source AND id > found.id AND found.of_type < :of_each",
    f"{_OF_TYPE} source > found.source",
    "event_type > found.event_type",
)
_FOUND = """WITH RECURSIVE found (id, event_type, source, number, of_type) AS (
    SELECT CAST(0 AS bigint), CAST(:after_type AS text), CAST(:after_source AS text), 0, :of_each
    UNION ALL
    SELECT here.id, here.event_type, here.source, found.number + 1,
        CASE WHEN here.event_type = found.event_type AND here.source = found.source
            THEN found.of_type + 1 ELSE 1 END
    FROM found JOIN $delivery AS here ON here.id = coalesce({firsts})
    WHERE found.number < :at_most
)"""
"""Up to `of_each` deliveries of each type and source after a pair of them, in the order of the index."""


def _of_each_type(columns: Sequence[Column[Any]], unread: str = words(UNREAD)) -> TextualSelect:
    firsts = ", ".join(_FIRST.format(unread=unread, behind=behind) for behind in _BEHIND)
    names = ", ".join(f"stored.{column.name}" for column in columns)
    chosen = f"SELECT {names} FROM found JOIN $delivery AS stored ON stored.id = found.id"  # noqa: S608
    parameters = (
        bindparam("after_type", type_=Text),
        bindparam("after_source", type_=Text),
        bindparam("of_each", type_=Integer),
        bindparam("at_most", type_=Integer),
    )
    sql = TextOfTables(f"{_FOUND.format(firsts=firsts)} {chosen} ORDER BY found.number")
    return sql.bindparams(*parameters).columns(*columns)


_OF_EACH_TYPE = _of_each_type(STORED_COLUMNS)
_OF_EACH_TYPE_FROM = _of_each_type(STORED_COLUMNS, f"{words(UNREAD)} AND id >= :from_id").bindparams(
    bindparam("from_id", type_=BigInteger)
)
_FIRST_OF_EACH = _of_each_type([delivery.c.id, delivery.c.received_at, delivery.c.event_type])


@dataclass(slots=True)
class RoundRobin:
    """Which event types have their turn, where more deliveries wait than a batch takes. For one thread."""

    queue_of: QueueOf
    of_each: int = MOST_OF_EACH
    after: tuple[str, str] = _START

    def choose(
        self,
        connection: Connection,
        oldest: list[StoredDelivery],
        limit: int,
        types: TypeFilter,
        from_id: int | None = None,
    ) -> list[StoredDelivery]:
        """Return `limit` deliveries: some of each of these types, and as many of the `oldest` as fit.

        Those of each type have ids from `from_id` on, if it is given.
        """
        at_most = limit // 2
        if not at_most:
            return oldest
        query = _OF_EACH_TYPE if from_id is None else _OF_EACH_TYPE_FROM
        kind, source = self.after
        values: dict[str, Any] = {"after_type": kind, "after_source": source, "from_id": from_id}
        rows = connection.execute(query, values | {"of_each": self.of_each, "at_most": at_most})
        found = [StoredDelivery(*row) for row in rows]
        # What is left to others takes room here, but is little, and for a minute at most.
        wanted = [one for one in found if types.has(one.event_type)]
        complete = self.after == _START and len(found) < at_most
        chosen = merge(oldest, wanted, self.of_each, self.queue_of, limit, complete=complete)
        if complete:
            number = len({(one.event_type, one.source) for one in found})
            self.of_each = max(1, min(MOST_OF_EACH, at_most // (number + 1)))
        elif len(found) < at_most:
            self.after = _START
        elif self.of_each > 1:
            self.of_each //= 2
        else:
            self.after = (found[-1].event_type, found[-1].source)
        return chosen


def merge(
    oldest: Iterable[StoredDelivery],
    found: Sequence[StoredDelivery],
    of_each: int,
    queue_of: QueueOf,
    limit: int,
    *,
    complete: bool,
) -> list[StoredDelivery]:
    """Return up to `limit` deliveries in the order of their ids: the first ones of each queue.

    `oldest` are the first of all. `found` are the first `of_each` of each type and source: of all of them if
    it is `complete`; else they do not tell the beginning of a queue that may have several types.
    """
    with_unread_types = {one.source for one in found if not one.event_type}
    queues: defaultdict[object, defaultdict[str, list[StoredDelivery]]]
    queues = defaultdict(lambda: defaultdict(list))
    for one in found:
        ordered = queue_of(one.event_type)
        if ordered is None:
            queues[one.source, one.event_type][one.event_type].append(one)
        elif complete:
            queue = None if one.source in with_unread_types else ordered
            queues[one.source, queue][one.event_type].append(one)
    chosen: dict[int, StoredDelivery] = {}
    for types in queues.values():
        # Behind the last of a type that may go on, its next delivery may come before those of the others.
        ends = [these[-1].delivery_id for these in types.values() if len(these) >= of_each]
        known_to = min(ends, default=LAST_ID)
        chosen |= {
            one.delivery_id: one for these in types.values() for one in these if one.delivery_id <= known_to
        }
    for one in oldest:
        if len(chosen) >= limit:
            break
        chosen[one.delivery_id] = one
    return [chosen[delivery_id] for delivery_id in sorted(chosen)]


def first_of_each(
    connection: Connection, at_most: int, types: TypeFilter = EVERY_TYPE
) -> list[tuple[int, datetime]]:
    """Return the id and the receipt of the first unread deliveries of each of these types, and source."""
    values = {"after_type": "", "after_source": "", "of_each": MOST_OF_EACH, "at_most": at_most}
    rows = connection.execute(_FIRST_OF_EACH, values)
    return [(row.id, row.received_at) for row in rows if types.has(row.event_type)]
