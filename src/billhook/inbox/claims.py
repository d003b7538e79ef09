"""Find what may be claimed: unread deliveries, due runs by handler; and when the next run is due.

A row that another worker is claiming is skipped, never waited for. Only the claim decides who runs what: a
run is claimed by the statement that raises its token, and the result of an earlier claim then matches no row.

A lease that its worker did not renew expires: see billhook.inbox.leases. Runs that wait in their order have
none: see billhook.inbox.runs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Select,
    Text,
    TextualSelect,
    and_,
    bindparam,
    cast,
    column,
    exists,
    func,
    literal_column,
    select,
    true,
    update,
)

from billhook.inbox.leases import CLAIMABLE, LEASE, lease_texts
from billhook.inbox.records import DeliveryState, HandlerLimits, Lease, RunState
from billhook.inbox.schema import delivery, handler, run
from billhook.inbox.sql import TextOfTables, UtcDateTime, distinct_values, in_parameter, in_states, in_values
from billhook.inbox.unread import STORED_COLUMNS

SUSPECT = and_(run.c.runs_alone == literal_column("1"), in_states(run.c.state, RunState.DUE))
"""Due, and its last attempt was lost with its worker. As the partial index has it."""
IS_PAUSED = handler.c.paused_at.is_not(None)


@dataclass(frozen=True, slots=True)
class PendingDelivery:
    """A delivery to be handled, `since` its receipt if it is unread, else since its run was due.

    `fresh`: no run of it was ever started, so a worker may have its message already. `limited`: its handler
    has a limit, so that a worker may have had its message, and no room for it.
    """

    delivery_id: int
    since: datetime
    fresh: bool
    limited: bool = False


class NextTimes(NamedTuple):
    """When an engine has to poll the inbox again; None without such a moment."""

    due_at: datetime | None
    """When the next run may be claimed, or the next lease ends."""
    suspect_at: datetime | None
    lease_ends_at: datetime | None = None
    due: Mapping[str, datetime] = {}
    """When the first run of each handler may be claimed, by the name that it is stored under."""
    suspects: Mapping[str, datetime] = {}
    """The same of suspects."""

    def names_due(self, now: datetime) -> list[str]:
        """Return the handlers of which an ordinary run may be claimed, the longest waiting first."""
        waiting = sorted((due_at, name) for name, due_at in self.due.items() if due_at <= now)
        return [name for _, name in waiting]

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
"""


def _moments(sql: str, **parameters: Any) -> TextualSelect:
    typed = [bindparam(name, type_=of_type) for name, of_type in parameters.items()]
    columns = (column("kind", Text), column("name", Text), column("at", UtcDateTime))
    return TextOfTables(sql + _OF_HANDLERS).bindparams(*typed).columns(*columns)


@cache
def _moments_of_all(dialect: str) -> TextualSelect:
    # SQLite knows the partial index by its words. PostgreSQL takes the two conditions for a rare coincidence,
    # and would not choose the index by its order.
    index = "state IN ('due', 'running') AND " if dialect == "sqlite" else ""
    due = {"state": "due", "of_index": f"{index}state = 'due'", "which": "AND runs_alone = 0"}
    running = {"state": "running", "of_index": f"{index}state = 'running'", "which": ""}
    steps = ", ".join(
        distinct_values(kind["state"], "handler", "run", kind["of_index"]) for kind in (due, running)
    )
    return _moments(
        f"WITH RECURSIVE {steps} "  # noqa: S608 - constants
        f"{_FIRST.format(**due)} UNION ALL {_FIRST.format(**running)} "
        "UNION ALL SELECT 'suspect', handler, min(due_at) FROM $run "
        "WHERE runs_alone = 1 AND state IN ('due') GROUP BY handler"
    )


_MOMENTS_OF_ONE = _moments(
    "SELECT CASE WHEN state = 'due' AND runs_alone = 1 THEN 'suspect' ELSE state END, handler, min(due_at) "
    "FROM $run WHERE delivery_id = :delivery_id AND state IN ('due', 'running') GROUP BY 1, 2",
    delivery_id=BigInteger,
)


def next_times(
    connection: Connection, limits: Mapping[str, HandlerLimits], only: int | None = None
) -> NextTimes:
    """Return when an engine has to poll again; for the runs of one delivery if `only` names it.

    A handler that is paused, or has as many runs under way as it may, has no due run. All that it reads may
    change until the claim, which decides.
    """
    if only is None:
        rows = connection.execute(_moments_of_all(connection.dialect.name)).all()
    else:
        rows = connection.execute(_MOMENTS_OF_ONE, {"delivery_id": only}).all()
    found: dict[str, dict[str, datetime]] = {
        kind: {} for kind in ("due", "running", "suspect", "paused", "start")
    }
    for kind, name, at in rows:
        if at is not None:
            found[kind][name] = at
    due, suspects = found["due"], found["suspect"]
    if limits or found["paused"]:
        due, suspects = (_unless_limited(connection, found, moments, limits) for moments in (due, suspects))
    lease_ends_at = min(found["running"].values(), default=None)
    moments = (*due.values(), *found["running"].values())
    return NextTimes(
        min(moments, default=None), min(suspects.values(), default=None), lease_ends_at, due, suspects
    )


def _unless_limited(
    connection: Connection,
    found: Mapping[str, Mapping[str, datetime]],
    due: Mapping[str, datetime],
    limits: Mapping[str, HandlerLimits],
) -> dict[str, datetime]:
    """Return when runs are due of those handlers that are not paused, and may start more."""
    paused = {limits[name].name if name in limits else name for name in found["paused"]}
    busy = names_at_limit(connection, limits, due)
    startable = {}
    for name, due_at in due.items():
        its_limits = limits.get(name)
        own_name = its_limits.name if its_limits else name
        if own_name in paused or own_name in busy:
            continue
        moment = due_at
        if its_limits and its_limits.rate:
            moment = max(due_at, found["start"].get(own_name, due_at))
        startable[name] = moment
    return startable


def names_at_limit(
    connection: Connection, limits: Mapping[str, HandlerLimits], names: Collection[str]
) -> set[str]:
    """Return those of the handlers, by their own names, that have as many runs under way as they may."""
    bounded = {limits[name].name: limits[name] for name in names if name in limits and limits[name].at_most}
    running = count_running(connection, bounded.values())
    return {name for name, of_it in bounded.items() if running[name] >= (of_it.at_most or 0)}


def count_running(connection: Connection, handlers: Collection[HandlerLimits]) -> dict[str, int]:
    """Return how many runs of each of these handlers are under way, by the handler's own name."""
    numbers = {of_it.name: 0 for of_it in handlers}
    if numbers:
        own_name = {name: of_it.name for of_it in handlers for name in of_it.names}
        query = (
            select(run.c.handler, func.count())
            .where(CLAIMABLE, run.c.state == RunState.RUNNING.value, in_values(run.c.handler, own_name))
            .group_by(run.c.handler)
        )
        for name, number in connection.execute(query):
            numbers[own_name[name]] += number
    return numbers


def pending(
    connection: Connection,
    limits: Mapping[str, HandlerLimits],
    times: NextTimes,
    *,
    received_before: datetime,
    now: datetime,
    limit: int,
) -> list[PendingDelivery]:
    """Find deliveries that should already be in progress, in case the message that named them was lost.

    Up to `limit`, unread ones and those with a run that may be claimed (one whose lease ran out may), the
    longest waiting first. Each delivery is named once.
    """
    # In the order of the partial index, so that a long backlog costs no more than a short one.
    unread = select(delivery.c.id, delivery.c.received_at).where(
        in_states(delivery.c.state, DeliveryState.RECEIVED), delivery.c.received_at <= received_before
    )
    rows = connection.execute(unread.order_by(delivery.c.id).limit(limit))
    by_id = {row.id: PendingDelivery(row.id, row.received_at, fresh=True) for row in rows}
    names = times.names_due(now)
    running = count_running(connection, [limits[name] for name in names if name in limits])
    for name in names:
        its_limits = limits.get(name)
        limited = its_limits is not None and its_limits.bounds_starts
        room = limit
        if its_limits is not None and its_limits.at_most is not None:
            room = max(0, its_limits.at_most - running[its_limits.name])
        for row in connection.execute(due_runs(name, now, room)):
            fresh = not row.attempts
            _add(by_id, PendingDelivery(row.delivery_id, row.due_at, fresh=fresh, limited=limited))
    lost = select(run.c.delivery_id, run.c.due_at).where(run.c.due_at <= now).limit(limit)
    expired = and_(CLAIMABLE, run.c.state == RunState.RUNNING.value)
    for which in (expired, SUSPECT):
        for delivery_id, since in connection.execute(lost.where(which)):
            _add(by_id, PendingDelivery(delivery_id, since, fresh=False))
    return sorted(by_id.values(), key=lambda delivery: (delivery.since, delivery.delivery_id))[:limit]


def due_runs(name: str, now: datetime, limit: int) -> Select[tuple[int, datetime, int]]:
    """Select the delivery, due time and attempts of the first due runs of a handler."""
    due = [CLAIMABLE, run.c.state == RunState.DUE.value, run.c.handler == name, run.c.due_at <= now]
    query = select(run.c.delivery_id, run.c.due_at, run.c.attempts).where(*due)
    return query.order_by(run.c.due_at, run.c.id).limit(limit)


def _add(by_id: dict[int, PendingDelivery], found: PendingDelivery) -> None:
    listed = by_id.get(found.delivery_id)
    # A started run of it counts more than its unstarted ones: then no worker has its message any more.
    if listed is None or (listed.fresh and not found.fresh):
        by_id[found.delivery_id] = found


def count_unfinished(connection: Connection, limit: int) -> int:
    """Count deliveries that are not finished, up to `limit`: by their partial index, never by the table."""
    unfinished = in_states(delivery.c.state, DeliveryState.RECEIVED, DeliveryState.PLANNED)
    # LIMIT inside: beyond the limit the exact number is of no use, and counting costs.
    some = select(delivery.c.id).where(unfinished).limit(limit).subquery()
    counted: int = connection.execute(select(func.count()).select_from(some)).scalar_one()
    return counted


FARTHEST = timedelta(days=62)
"""The longest wait between attempts with the longest jitter; no lease is longer."""


def reset_far_due_times(connection: Connection, names: Iterable[str], now: datetime) -> None:
    """Make due what is due later than any wait may take: it was written when the clock was ahead.

    Runs of the handlers of these names, which the index finds, and suspects.
    """
    # Not leases: this worker's own clock may be the one that is wrong.
    due = [and_(CLAIMABLE, run.c.state == RunState.DUE.value, run.c.handler == name) for name in names]
    for which in (*due, SUSPECT):
        far = select(run.c.id).where(which, run.c.due_at > now + FARTHEST)
        # Rows that another worker has locked are reset by it, or the next time.
        found = far.with_for_update(skip_locked=True)
        connection.execute(update(run).where(run.c.id.in_(found)).values(due_at=now))


# --- due runs -----------------------------------------------------------------------------------------

_NOW = bindparam("now", type_=UtcDateTime)
CLAIMED_COLUMNS = (
    run.c.id.label("run_id"),
    run.c.token,
    run.c.handler,
    run.c.attempts,
    run.c.queued,
    run.c.delivery_id,
    run.c.due_at,
    run.c.runs_alone,
    run.c.excused_attempts,
    run.c.replays,
    run.c.order_key,
)


def find_due(
    connection: Connection, rooms: Mapping[str, int], now: datetime, only: int | None, *, suspects: bool
) -> list[Any]:
    """Lock and return due runs, as many of each handler as it has room for; the longest waiting first.

    Those of one delivery if `only` names it; `suspects` among them, or none.
    """
    names_by_room: defaultdict[int, list[str]] = defaultdict(list)
    for name, room in sorted(rooms.items()):
        if room > 0:
            names_by_room[room].append(name)
    # Mostly one number: the same for each handler without a limit.
    statement = _due_of_handlers(connection.dialect.name, of_one=only is not None, suspects=suspects)
    rows: list[Any] = []
    for room, names in names_by_room.items():
        rows += connection.execute(
            statement, {"now": now, "of_delivery": only, "names": json.dumps(names), "room": room}
        )
    return sorted(rows, key=lambda row: (row.due_at, row.run_id))


def find_suspect(
    connection: Connection,
    rooms: Mapping[str, int],
    now: datetime,
    only: int | None,
    held: Iterable[Lease],
) -> list[Any]:
    """Lock and return the due suspect to be tried next, if there is one, of a handler that has room.

    First those with the fewest attempts that count; those that were lost beside other runs come last. None
    of `held` leases, whose attempts this process has under way.
    """
    values = {"now": now, "of_delivery": only, "names": [name for name, room in rooms.items() if room > 0]}
    values["held"] = lease_texts(held)
    return list(connection.execute(_due_suspect(of_one=only is not None), values))


# --- statements ---------------------------------------------------------------------------------------


def _due(table: FromClause, *conditions: ColumnElement[bool], of_one: bool) -> list[ColumnElement[bool]]:
    """Return the conditions of due runs of handlers that are not paused."""
    # Read by the claim and not before: no run starts once a pause is committed.
    paused = exists().where(handler.c.name == table.c.handler, IS_PAUSED)
    found = [*conditions, table.c.due_at <= _NOW, ~paused]
    return [*found, table.c.delivery_id == bindparam("of_delivery", type_=BigInteger)] if of_one else found


@cache
def _due_of_handlers(dialect: str, *, of_one: bool, suspects: bool) -> Select[Any]:
    """Build the statement that locks and returns the first due runs of some handlers, `room` of each.

    By their index alone: no body is read for a row that is skipped.
    """
    names = bindparam("names", type_=Text)
    each = func.json_each(names) if dialect == "sqlite" else func.json_array_elements_text(cast(names, JSON))
    wanted = each.table_valued("value", name="wanted")
    table = run.alias("own") if dialect == "sqlite" else run
    is_due = table.c.state == literal_column(f"'{RunState.DUE.value}'", Text)
    conditions = _due(table, is_due, table.c.handler == wanted.c.value, of_one=of_one)
    if dialect == "sqlite":  # by these words it knows the partial index
        conditions.append(in_states(table.c.state, RunState.DUE, RunState.RUNNING))
    if not suspects:
        conditions.append(table.c.runs_alone == 0)
    columns = (table.c.id,) if dialect == "sqlite" else CLAIMED_COLUMNS
    first = select(*columns).where(*conditions).order_by(table.c.due_at, table.c.id)
    first = first.limit(bindparam("room", type_=Integer)).correlate(wanted)
    if dialect == "sqlite":  # it has no LATERAL, and no other transaction that writes
        found = wanted.join(run, run.c.id.in_(first)).join(delivery, delivery.c.id == run.c.delivery_id)
        return select(*CLAIMED_COLUMNS, *STORED_COLUMNS).select_from(found)
    few = first.with_for_update(of=run, skip_locked=True).lateral("few")
    locked = wanted.join(few, true()).join(delivery, delivery.c.id == few.c.delivery_id)
    return select(few, *STORED_COLUMNS).select_from(locked)


@cache
def _due_suspect(*, of_one: bool) -> Select[Any]:
    has_room = in_parameter(run.c.handler, "names")
    conditions = _due(run, SUSPECT, has_room, ~in_parameter(LEASE, "held"), of_one=of_one)
    first = select(*CLAIMED_COLUMNS).where(*conditions)
    first = first.order_by(
        run.c.beside_others, run.c.attempts - run.c.excused_attempts, run.c.due_at, run.c.id
    )
    few = first.limit(1).with_for_update(of=run, skip_locked=True).cte("few")
    return select(few, *STORED_COLUMNS).join(delivery, delivery.c.id == few.c.delivery_id)
