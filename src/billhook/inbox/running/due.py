"""Find what an engine has to do: unread deliveries, handlers with runs that may be claimed, and what waits.

All that it reads may change until the claim, which decides: see billhook.inbox.running.claims.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Select,
    Text,
    TextualSelect,
    and_,
    bindparam,
    column,
    func,
    select,
    update,
)

from billhook.basics.type_names import is_reading
from billhook.inbox.running.handler_lists import EVERY_TYPE, NEWEST_LIST, TypeFilter, of_types
from billhook.inbox.running.postponing import not_earlier
from billhook.inbox.running.unread import STORED_COLUMNS, RoundRobin, first_of_each
from billhook.inbox.tables.handler_names import stored_names
from billhook.inbox.tables.records import HandlerLimits, StoredDelivery, own_name
from billhook.inbox.tables.schema import (
    CLAIMABLE,
    DUE_RUN,
    RUNNING_RUN,
    SUSPECT,
    UNFINISHED,
    UNREAD,
    delivery,
    handler,
    run,
)
from billhook.inbox.tables.sql import TextOfTables, UtcDateTime, distinct_values, in_values, words

NEVER = datetime(9999, 1, 1, tzinfo=UTC)
"""A time since when no process can have been seen: for a caller that leaves no delivery to others."""
IS_PAUSED = handler.c.paused_at.is_not(None)
_RECEIVED = (
    select(NEWEST_LIST, *STORED_COLUMNS)
    .where(UNREAD)
    .order_by(delivery.c.id)
    .limit(bindparam("at_most", type_=Integer))
)
"""Up to `at_most` deliveries that wait to be planned, oldest first: the fields of StoredDelivery, after the
number of the newest list of handlers."""
_RECEIVED_ONE = _RECEIVED.where(delivery.c.id == bindparam("delivery_id", type_=BigInteger))
_RECEIVED_FROM = _RECEIVED.where(delivery.c.id >= bindparam("from_id", type_=BigInteger))


class PollStart(NamedTuple):
    """Where a poll begins in the indexes of what waits, if not at their beginnings.

    It looks for deliveries with ids from `delivery_id` on, and for runs of handlers with these `names`: due
    ones from `due_at` on, and those under way with leases that end from `leased_until` on.
    """

    delivery_id: int
    due_at: datetime
    leased_until: datetime
    names: tuple[str, ...]


class Unread(NamedTuple):
    """Deliveries that no engine has read yet, and the newest list of handlers in the same snapshot.

    `newest_list` is None without deliveries, and where no process is alive.
    """

    deliveries: list[StoredDelivery]
    newest_list: int | None
    first_id: int | None = None
    """The lowest id of what waits, also where others have their turn."""


def read_unread(
    connection: Connection,
    limit: int,
    turns: RoundRobin | None = None,
    types: TypeFilter = EVERY_TYPE,
    alive_since: datetime = NEVER,
    only: int | None = None,
    start: PollStart | None = None,
) -> Unread:
    """Return up to `limit` deliveries of these types: the oldest, or in turn where more wait.

    That one, of any type, if `only` names it; else only those from a `start` on, if it is given. Processes
    that were seen since `alive_since` are alive.
    """
    values: dict[str, Any] = {"at_most": limit, "alive_since": alive_since}
    from_id = None if start is None else start.delivery_id
    if only is not None:
        query, values = _RECEIVED_ONE, {**values, "at_most": 1, "delivery_id": only}
    else:
        query, values = (_RECEIVED if from_id is None else _RECEIVED_FROM), {**values, "from_id": from_id}
        query = query if types == EVERY_TYPE else query.where(*of_types(types))
    rows = connection.execute(query, values).all()
    oldest = [StoredDelivery(*row[1:]) for row in rows]
    first_id = oldest[0].delivery_id if oldest else None
    if turns is not None and only is None and len(oldest) >= limit:
        oldest = turns.choose(connection, oldest, limit, types, from_id)
    return Unread(oldest, rows[0][0] if rows else None, first_id)


@dataclass(frozen=True, slots=True)
class PendingDelivery:
    """A delivery to be handled, `since` its receipt if it is unread, else since its run was due.

    `fresh`: no run of it was ever started, so a worker may have its message already. `limited_handler`: its
    handler, if that has a limit: a worker may have had its message, and no capacity for it.
    """

    delivery_id: int
    since: datetime
    fresh: bool
    limited_handler: str = ""


class NextTimes(NamedTuple):
    """When an engine has to poll the inbox again; None without such a moment."""

    due_at: datetime | None
    """When the next run may be claimed, or the next lease ends."""
    suspect_at: datetime | None
    lease_ends_at: datetime | None = None
    due: Mapping[str, datetime] = {}
    """When the first run of each handler may be claimed, by the name that it is stored under."""
    suspects: Mapping[str, datetime] = {}
    """When the first suspect of each handler may be claimed, likewise."""
    held: frozenset[str] = frozenset()
    """The owners that an operator holds: they start no run."""
    first_due_at: datetime | None = None
    """When the first run is due, also of a handler that may not start one."""
    names: frozenset[str] = frozenset()
    """The names that due runs and those under way are stored under, likewise."""
    due_from: datetime | None = None
    """No run was looked for that was due before."""

    def names_due(self, now: datetime) -> list[str]:
        """Return the handlers of which an ordinary run may be claimed, the longest waiting first."""
        waiting = sorted((due_at, name) for name, due_at in self.due.items() if due_at <= now)
        return [name for _, name in waiting]

    def of(self, which: Callable[[str], bool]) -> NextTimes:
        """Return the times of these handlers alone, by the names that runs are stored under."""
        due = {name: at for name, at in self.due.items() if which(name)}
        suspects = {name: at for name, at in self.suspects.items() if which(name)}
        moments = (*due.values(), *([] if self.lease_ends_at is None else [self.lease_ends_at]))
        first, suspect_at = min(moments, default=None), min(suspects.values(), default=None)
        return self._replace(due_at=first, suspect_at=suspect_at, due=due, suspects=suspects)

    def apart(self) -> tuple[NextTimes, dict[str, datetime]]:
        """Return the times without readings that are due, and when those are; suspects stay in the times."""
        readings = {name: at for name, at in self.due.items() if is_reading(name)}
        if not readings:
            return self, readings
        ordinary = self.of(lambda name: not is_reading(name))
        return ordinary._replace(suspect_at=self.suspect_at, suspects=self.suspects), readings

    def after(self, now: datetime) -> datetime | None:
        """Return the first moment after now at which a run may be claimed, or a lease ends."""
        moments = (*self.due.values(), *self.suspects.values(), self.lease_ends_at)
        return min((at for at in moments if at is not None and at > now), default=None)


NOTHING_DUE = NextTimes(None, None)


_FIRST = """SELECT '{state}' AS kind, handler, (
    SELECT due_at FROM $run WHERE {of_index} AND run.handler = {state}.handler {which} ORDER BY due_at LIMIT 1
) FROM {state} WHERE handler IS NOT NULL"""
_OF_HANDLERS = """
    UNION ALL SELECT 'paused', name, paused_at FROM $billhook_handler WHERE paused_at IS NOT NULL
    UNION ALL SELECT 'start', name, next_start_at FROM $billhook_handler WHERE next_start_at IS NOT NULL
    UNION ALL SELECT 'held', owner, held_at FROM $billhook_worker WHERE held_at IS NOT NULL
"""


def _moments(sql: str, **parameters: Any) -> TextualSelect:
    typed = [bindparam(name, type_=of_type) for name, of_type in parameters.items()]
    columns = (column("kind", Text), column("name", Text), column("at", UtcDateTime))
    return TextOfTables(sql + _OF_HANDLERS).bindparams(*typed).columns(*columns)


_CLAIMABLE = f"$by_index({words(CLAIMABLE)})"
_DUE = {"state": "due", "of_index": f"{_CLAIMABLE}state = 'due'", "which": "AND runs_alone = 0"}
_RUNNING = {"state": "running", "of_index": f"{_CLAIMABLE}state = 'running'", "which": ""}
_STEPS = ", ".join(
    distinct_values(kind["state"], "handler", "run", kind["of_index"]) for kind in (_DUE, _RUNNING)
)
_SUSPECTS = f"SELECT 'suspect', handler, min(due_at) FROM $run WHERE {words(SUSPECT)} GROUP BY handler"  # noqa: S608
_MOMENTS_OF_ALL = _moments(
    f"WITH RECURSIVE {_STEPS} "
    f"{_FIRST.format(**_DUE)} UNION ALL {_FIRST.format(**_RUNNING)} UNION ALL {_SUSPECTS}"
)
_DUE_FROM = _DUE | {"which": f"{_DUE['which']} AND due_at >= :due_from"}
_RUNNING_FROM = _RUNNING | {"which": "AND due_at >= :leased_from"}
_MOMENTS_FROM = _moments(
    "WITH due (handler) AS (SELECT value FROM $each_text(:names)), running AS (SELECT handler FROM due) "  # noqa: S608
    f"{_FIRST.format(**_DUE_FROM)} UNION ALL {_FIRST.format(**_RUNNING_FROM)} UNION ALL {_SUSPECTS}",
    names=Text,
    due_from=UtcDateTime,
    leased_from=UtcDateTime,
)
_MOMENTS_OF_ONE = _moments(
    "SELECT CASE WHEN state = 'due' AND runs_alone = 1 THEN 'suspect' ELSE state END, handler, min(due_at) "  # noqa: S608
    f"FROM $run WHERE delivery_id = :delivery_id AND {words(CLAIMABLE)} GROUP BY 1, 2",
    delivery_id=BigInteger,
)


def next_times(
    connection: Connection,
    limits: Mapping[str, HandlerLimits],
    only: int | None = None,
    start: PollStart | None = None,
) -> NextTimes:
    """Return when an engine has to poll again; for the runs of one delivery if `only` names it.

    A handler that is paused, or has as many runs under way as it may, has no due run. All that it reads may
    change until the claim, which decides.
    """
    if only is not None:
        rows = connection.execute(_MOMENTS_OF_ONE, {"delivery_id": only})
    elif start is None:
        rows = connection.execute(_MOMENTS_OF_ALL)
    else:
        bounds = {"due_from": start.due_at, "leased_from": start.leased_until}
        rows = connection.execute(_MOMENTS_FROM, {"names": json.dumps(start.names), **bounds})
    found: defaultdict[str, dict[str, datetime]] = defaultdict(dict)
    for kind, name, at in rows:
        if at is not None:
            found[kind][name] = at
    due, suspects = found["due"], found["suspect"]
    first_due_at, names = min(due.values(), default=None), frozenset((*due, *found["running"]))
    if limits or found["paused"]:
        due, suspects = (_unless_limited(connection, found, moments, limits) for moments in (due, suspects))
    lease_ends_at = min(found["running"].values(), default=None)
    moments = (*due.values(), *found["running"].values())
    return NextTimes(
        min(moments, default=None), min(suspects.values(), default=None), lease_ends_at, due, suspects,
        frozenset(found["held"]), first_due_at, names, None if start is None else start.due_at,
    )  # fmt: skip


def _unless_limited(
    connection: Connection,
    found: Mapping[str, Mapping[str, datetime]],
    due: Mapping[str, datetime],
    limits: Mapping[str, HandlerLimits],
) -> dict[str, datetime]:
    """Leave out handlers that are paused or have no capacity; return when the others have due runs."""
    paused = {own_name(limits, name) for name in found["paused"]}
    busy = names_at_limit(connection, limits, due)
    startable = {}
    for name, due_at in due.items():
        own, its_limits = own_name(limits, name), limits.get(name)
        if own not in paused and own not in busy:
            start_at = found["start"].get(own, due_at) if its_limits and its_limits.rate else due_at
            startable[name] = max(due_at, start_at)
    return startable


def names_at_limit(
    connection: Connection, limits: Mapping[str, HandlerLimits], names: Collection[str]
) -> set[str]:
    """Return those of the handlers, by their own names, that have as many runs under way as they may."""
    bounded = {limits[name].name: limits[name] for name in names if name in limits and limits[name].at_most}
    running = count_running(connection, bounded.values())
    return {name for name, of_it in bounded.items() if running[name] >= (of_it.at_most or 0)}


def count_running(connection: Connection, handlers: Collection[HandlerLimits]) -> dict[str, int]:
    """Return how many runs of each of these handlers are under way, by the handler's own name.

    Those that newer code has under the names that it gives the handler are counted too.
    """
    numbers = {of_it.name: 0 for of_it in handlers}
    if numbers:
        names = stored_names(connection)
        own = {name: of_it.name for of_it in handlers for name in names.get(of_it.name, ())}
        own |= {name: of_it.name for of_it in handlers for name in of_it.names}
        running = select(run.c.handler, func.count()).where(RUNNING_RUN, in_values(run.c.handler, own))
        for name, number in connection.execute(running.group_by(run.c.handler)):
            numbers[own[name]] += number
    return numbers


def pending(
    connection: Connection,
    limits: Mapping[str, HandlerLimits],
    times: NextTimes,
    *,
    received_before: datetime,
    now: datetime,
    limit: int,
    types: TypeFilter = EVERY_TYPE,
) -> list[PendingDelivery]:
    """Find deliveries that should already be in progress, in case the message that named them was lost.

    Up to `limit`, unread ones of these types, and those with a run that may be claimed (one whose lease ran
    out may), the longest waiting first. Each delivery is named once. Of a backlog, up to half are the first
    of each type.
    """
    # In the order of the partial index, so that a long backlog costs no more than a short one.
    unread = select(delivery.c.id, delivery.c.received_at).where(
        UNREAD, delivery.c.received_at <= received_before, *of_types(types)
    )
    rows = connection.execute(unread.order_by(delivery.c.id).limit(limit))
    by_id = {row.id: PendingDelivery(row.id, row.received_at, fresh=True) for row in rows}
    first = first_of_each(connection, limit // 2, types) if len(by_id) == limit else []
    kept = {
        delivery_id: PendingDelivery(delivery_id, received_at, fresh=True)
        for delivery_id, received_at in first
        if received_at <= received_before and delivery_id not in by_id
    }
    names = times.names_due(now)
    running = count_running(connection, [limits[name] for name in names if name in limits])
    for name in names:
        its_limits = limits.get(name)
        limited = its_limits.name if its_limits is not None and its_limits.bounds_starts else ""
        capacity = limit
        if its_limits is not None and its_limits.at_most is not None:
            capacity = max(0, its_limits.at_most - running[its_limits.name])
        for row in connection.execute(due_runs(name, now, capacity)):
            fresh = not row.attempts
            _add(by_id, PendingDelivery(row.delivery_id, row.due_at, fresh=fresh, limited_handler=limited))
    lost = select(run.c.delivery_id, run.c.due_at).where(run.c.due_at <= now).limit(limit)
    for which in (RUNNING_RUN, and_(SUSPECT, in_values(run.c.handler, times.suspects))):
        for delivery_id, since in connection.execute(lost.where(which)):
            _add(by_id, PendingDelivery(delivery_id, since, fresh=False))
    others = sorted(by_id.values(), key=_waits_since)[: limit - len(kept)]
    return sorted([*kept.values(), *others], key=_waits_since)


def _waits_since(found: PendingDelivery) -> tuple[datetime, int]:
    return found.since, found.delivery_id


def due_runs(name: str, now: datetime, limit: int) -> Select[tuple[int, datetime, int]]:
    """Select the delivery, due time and attempts of the first due runs of a handler."""
    due = [DUE_RUN, run.c.handler == name, run.c.due_at <= now]
    query = select(run.c.delivery_id, run.c.due_at, run.c.attempts).where(*due)
    return query.order_by(run.c.due_at, run.c.id).limit(limit)


def _add(by_id: dict[int, PendingDelivery], found: PendingDelivery) -> None:
    listed = by_id.get(found.delivery_id)
    # A started run of it counts more than its unstarted ones: then no worker has its message any more.
    if listed is None or (listed.fresh and not found.fresh):
        by_id[found.delivery_id] = found


def count_unfinished(connection: Connection, limit: int) -> int:
    """Count deliveries that are not finished, up to `limit`: by their partial index, never by the table."""
    # LIMIT inside: beyond the limit the exact number is of no use, and counting costs.
    some = select(delivery.c.id).where(UNFINISHED).limit(limit).subquery()
    counted: int = connection.execute(select(func.count()).select_from(some)).scalar_one()
    return counted


FARTHEST = timedelta(days=62)
"""The longest wait between attempts with the longest jitter; no lease is longer."""


def reset_far_due_times(connection: Connection, names: Iterable[str], now: datetime) -> None:
    """Make runs due whose due time is further ahead than any wait: it was written while the clock was ahead.

    Looked at are suspects, and runs of the handlers of these names, by the index. A run that was postponed is
    due at the time that was named for it.
    """
    # Not leases: this worker's own clock may be the one that is wrong.
    due = [and_(DUE_RUN, run.c.handler == name) for name in names]
    for which in (*due, SUSPECT):
        far = select(run.c.id).where(which, run.c.due_at > now + FARTHEST)
        # Rows that another worker has locked are reset by it, or the next time.
        found = far.with_for_update(skip_locked=True)
        connection.execute(update(run).where(run.c.id.in_(found)).values(due_at=not_earlier(now)))
