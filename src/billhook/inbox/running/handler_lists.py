"""The lists of handlers that processes have, and which of them decides what a delivery gets.

A list is its content: the handlers of a process by event type, with their sources, aliases and order, and
the event types that it knows. The same list in another process is the same row. Of the lists of live
processes the one that was first seen last is the newest, and decides: so code that is restarted is not newer
than it was, and after a roll-back the older list decides as soon as the newer processes are gone. What the
newest list plans differently from its own, a process leaves to those that have the newest one.

    a list is written     before its process plans for the first time, and when it has changed
    a process is alive    from then on, until it is asked to stop, or was not seen for a minute
    it has planned        noted with a plan, and with its row where there was nothing to plan, every 20 s
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, Self

from sqlalchemy import ColumnElement, Connection, bindparam, delete, exists, func, or_, select, update

from billhook.inbox.running.workers import WORKER_SILENT_AFTER
from billhook.inbox.tables.dialect import dialect_of
from billhook.inbox.tables.schema import UNREAD, delivery, handler_list, worker
from billhook.inbox.tables.sql import UtcDateTime, in_values

UNKNOWN_TYPES = ""
"""Stands for the event types without a model in the place of a type, which is never empty."""
KEPT_LISTS = 1_000
_ALIVE = (worker.c.stopped_at.is_(None), worker.c.list_id.is_not(None))
_MAY_PLAN = (*_ALIVE, worker.c.held_at.is_(None))
"""A worker that is held has its handlers, but plans nothing: no other waits for it."""
NEWEST_LIST = (
    select(func.max(worker.c.list_id))
    .where(*_MAY_PLAN, worker.c.seen_at > bindparam("alive_since", type_=UtcDateTime))
    .scalar_subquery()
)
"""The number of the newest list of processes that were seen since `alive_since` and may plan, or NULL."""


class TypeFilter(NamedTuple):
    """Event types: these `names`, or with `but` all except these. "" is one that is in the body, unread."""

    names: frozenset[str]
    but: bool = False

    def has(self, event_type: str) -> bool:
        """Return whether deliveries of an event type are among them."""
        return (event_type in self.names) != self.but


EVERY_TYPE = TypeFilter(frozenset(), but=True)


@dataclass(frozen=True, eq=False)
class HandlerList:
    """What a process has: the sources of each handler by event type and name, and its handlers' aliases.

    Each event type that it knows is in `by_type`, also without handlers; UNKNOWN_TYPES has the handlers of
    the others. A handler without sources handles all of them. `ordered` has the field that the runs of a
    handler are ordered by, for those that are.
    """

    by_type: Mapping[str, Mapping[str, Collection[str]]]
    aliases: Mapping[str, Collection[str]]
    ordered: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: str) -> Self:
        """Return the list that was written as this text."""
        return cls(**json.loads(content))

    @cached_property
    def content(self) -> str:
        """The list as text, the same for equal lists."""
        by_type = {
            event_type: {name: sorted(sources) for name, sources in named.items()}
            for event_type, named in self.by_type.items()
        }
        aliases = {name: sorted(names) for name, names in self.aliases.items() if names}
        whole = {"by_type": by_type, "aliases": aliases, "ordered": dict(self.ordered)}
        return json.dumps(whole, sort_keys=True)

    @cached_property
    def digest(self) -> str:
        """What identifies the list: SHA-256 of its text, in hex."""
        return sha256(self.content.encode()).hexdigest()

    @cached_property
    def names(self) -> frozenset[str]:
        """The handlers' own names."""
        return frozenset(name for named in self.by_type.values() for name in named)

    @cached_property
    def stored_names(self) -> frozenset[str]:
        """The names that runs of its handlers are stored under: their own, and their aliases."""
        return self.names.union(*(self.aliases.get(name, ()) for name in self.names))

    @cached_property
    def _stored_names_of(self) -> Mapping[str, frozenset[str]]:
        return {
            event_type: frozenset(named).union(*(self.aliases.get(name, ()) for name in named))
            for event_type, named in self.by_type.items()
        }

    def knows(self, event_type: str) -> bool:
        """Return whether it has a model of an event type."""
        return event_type in self.by_type and event_type != UNKNOWN_TYPES

    def of_type(self, event_type: str) -> Mapping[str, Collection[str]]:
        """Return the handlers of an event type, with their sources, by name."""
        found = self.by_type.get(event_type)
        return self.by_type.get(UNKNOWN_TYPES, {}) if found is None else found

    def calls(self, stored_name: str, event_type: str) -> bool:
        """Return whether it has the handler of a run, for an event type."""
        names = self._stored_names_of
        return stored_name in names.get(event_type, names.get(UNKNOWN_TYPES, ()))

    def plans_as(self, other: HandlerList) -> TypeFilter:
        """Return the event types whose deliveries get the same by this list and another one.

        Without those that share an ordered handler, by one of the lists, with a type that gets something
        else: of these the earlier deliveries are planned first, by one process.
        """
        known = {each for each in (*self.by_type, *other.by_type) if each != UNKNOWN_TYPES}
        alike = {each for each in known if self.knows(each) == other.knows(each)}
        alike = {each for each in alike if self._plan(each) == other._plan(each)}
        queues = [*self._queues(), *other._queues()]
        while beside := {one for queue in queues if not queue <= alike for one in queue & alike}:
            alike -= beside
        if self._plan(UNKNOWN_TYPES) != other._plan(UNKNOWN_TYPES):
            return TypeFilter(frozenset(alike))
        # Where any type differs, one that is not read yet may be that.
        return TypeFilter(frozenset({*known - alike, ""}), but=True) if known - alike else EVERY_TYPE

    def _plan(self, event_type: str) -> dict[str, tuple[set[str], str | None]]:
        """Return what a delivery of an event type gets: for each handler its sources and its order."""
        named = self.of_type(event_type).items()
        return {name: ({*sources}, self.ordered.get(name)) for name, sources in named}

    def _queues(self) -> list[set[str]]:
        """Return the event types of each ordered handler."""
        return [{each for each, named in self.by_type.items() if name in named} for name in self.ordered]


class LiveList(NamedTuple):
    """A list of live processes: when one last planned, or had nothing to, and since when there is always one.

    `is_held`: an operator holds each of these processes, so that none of them plans.
    """

    number: int
    handlers: HandlerList
    planned_at: datetime | None
    live_since: datetime
    is_held: bool = False


def list_number(connection: Connection, own: HandlerList, now: datetime) -> int:
    """Return the number of a list; a list that is new here is given the next one.

    Call it before the process is recorded as alive: if no live process has the list, its processes count as
    alive from now on.
    """
    query = select(handler_list.c.id).where(handler_list.c.digest == own.digest)
    number: int | None = connection.execute(query).scalar()
    if number is None:
        values = {"digest": own.digest, "content": own.content, "live_since": now}
        row = dialect_of(connection).insert(handler_list).values(**values)
        # Another process may insert it at the same time: then this waits for its commit.
        connection.execute(row.on_conflict_do_nothing(index_elements=[handler_list.c.digest]))
        number = connection.execute(query).scalar_one()
        _forget_old(connection, number)
        return number
    alive = exists().where(worker.c.list_id == number, *_ALIVE, worker.c.seen_at > now - WORKER_SILENT_AFTER)
    connection.execute(update(handler_list).where(handler_list.c.id == number, ~alive).values(live_since=now))
    return number


def _forget_old(connection: Connection, number: int) -> None:
    """Delete lists that many others came after: handlers may be named differently at each start."""
    used = exists().where(worker.c.list_id == handler_list.c.id)
    connection.execute(delete(handler_list).where(handler_list.c.id <= number - KEPT_LISTS, ~used))


def read_live_lists(connection: Connection, now: datetime) -> list[LiveList]:
    """Return the lists of live processes, the newest first."""
    alive, planning = (
        select(worker.c.list_id).where(*which, worker.c.seen_at > now - WORKER_SILENT_AFTER)
        for which in (_ALIVE, _MAY_PLAN)
    )
    own = handler_list.c
    may_plan = own.id.in_(planning).label("may_plan")
    query = select(own.id, own.content, own.planned_at, own.live_since, may_plan).where(own.id.in_(alive))
    return [
        LiveList(number, HandlerList.parse(content), planned_at, live_since, not may_plan)
        for number, content, planned_at, live_since, may_plan in connection.execute(
            query.order_by(own.id.desc())
        )
    ]


def note_planned(connection: Connection, number: int, at: datetime) -> None:
    """Note that a process of a list has planned. Last in its transaction: others may write the row, too."""
    noted_at = handler_list.c.planned_at
    # One that is much later was noted before a clock was set back.
    is_other = or_(noted_at.is_(None), noted_at < at, noted_at > at + WORKER_SILENT_AFTER)
    # Skipped where another process is noting it just now: the time is the same.
    own = select(handler_list.c.id).where(handler_list.c.id == number, is_other)
    own = own.with_for_update(skip_locked=True)
    noting = update(handler_list).where(handler_list.c.id.in_(own))
    connection.execute(noting.values(planned_at=at))


def of_types(types: TypeFilter) -> list[ColumnElement[bool]]:
    """Return the condition that a delivery is of one of these types; none for every type."""
    if types == EVERY_TYPE:
        return []
    # Not by the index of the types: the oldest are wanted, and few are left out.
    among = in_values(func.coalesce(delivery.c.event_type, ""), sorted(types.names))
    return [~among if types.but else among]


def _left_out(types: TypeFilter) -> list[ColumnElement[bool]]:
    return [UNREAD, *of_types(TypeFilter(types.names, but=not types.but))]


def waits_since(connection: Connection, types: TypeFilter) -> datetime | None:
    """Return when the oldest unread delivery came that is of none of these types; None without one."""
    query = select(delivery.c.received_at).where(*_left_out(types))
    found: datetime | None = connection.execute(query.order_by(delivery.c.id).limit(1)).scalar()
    return found


def count_left_out(connection: Connection, types: TypeFilter) -> int:
    """Count the unread deliveries that are of none of these types."""
    query = select(func.count()).select_from(delivery).where(*_left_out(types))
    number: int = connection.execute(query).scalar_one()
    return number


class Lacking(NamedTuple):
    """How many deliveries were planned without the newest list, and how many lack each of its handlers."""

    number: int
    names: Mapping[str, int]


class ListNote(NamedTuple):
    """What is recorded about plans: the list that made them, and what it planned in place of newer ones.

    `number` is None while it is known that the list plans; `missed` is by the numbers of the newer lists.
    """

    number: int | None
    at: datetime
    missed: Mapping[int, Lacking]


def record_lacking(connection: Connection, number: int, missed: Lacking, now: datetime) -> None:
    """Add to what was planned without a list although it was the newest one."""
    own = handler_list.c.id == number
    query = select(handler_list.c.missed_names).where(own).with_for_update()
    names = Counter(json.loads(connection.execute(query).scalar() or "{}"))
    names.update(missed.names)
    values = {
        "missed": handler_list.c.missed + missed.number,
        "missed_names": json.dumps(names, sort_keys=True),
        "missed_at": now,
    }
    connection.execute(update(handler_list).where(own).values(values))
