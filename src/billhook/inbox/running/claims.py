"""Find and lock the runs that a worker claims: due ones by handler, or one suspect.

A row that another worker is claiming is skipped, never waited for. Only the claim decides who runs what: a
run is claimed by the statement that raises its token, and the result of an earlier claim then matches no row.

A lease that its worker did not renew expires: see inbox.running.leases. Runs that wait in their order have
none: see billhook.inbox.running.ordering.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Select,
    Text,
    bindparam,
    exists,
    literal_column,
    select,
)

from billhook.inbox.running.due import IS_PAUSED
from billhook.inbox.running.leases import LEASE, lease_texts
from billhook.inbox.running.unread import STORED_COLUMNS
from billhook.inbox.tables.dialect import InboxDialect, dialect_of
from billhook.inbox.tables.records import Lease
from billhook.inbox.tables.schema import CLAIMABLE, SUSPECT, delivery, handler, run
from billhook.inbox.tables.sql import UtcDateTime, in_parameter, of_alias
from billhook.inbox.tables.states import RunState

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
    run.c.uncounted_attempts,
    run.c.postponements,
    run.c.replays,
    run.c.order_key,
)


def find_due(
    connection: Connection,
    capacities: Mapping[str, int],
    now: datetime,
    only: int | None,
    held: Set[Lease],
    *,
    suspects: bool,
    may_call: Callable[[str, str], bool] | None = None,
    due_from: datetime | None = None,
) -> list[Any]:
    """Lock and return due runs, as many of each handler as it has capacity for; the longest waiting first.

    With `only`, runs of that delivery alone; with `suspects`, suspects too. Runs of the leases in `held` are
    left out, as their attempts are under way in this process, and so are those of a handler that the caller
    may not call for their event type. `due_from` is where to begin in the index, if not at its beginning.
    """
    values: dict[str, Any] = {"now": now, "of_delivery": only, "due_from": due_from}
    which = {"of_one": only is not None, "suspects": suspects, "from_time": due_from is not None}
    found, left = _find(connection, capacities, values, **which), set[str]()
    while True:
        is_held = not held.isdisjoint((row.run_id, row.token) for row in found)
        others = {
            f"{row.handler}\n{row.event_type}"
            for row in found
            if may_call is not None and not may_call(row.handler, row.event_type)
        }
        if not (is_held or others):
            return found
        # They are in the places of others. Mostly there are none: each row would be compared for nothing.
        left |= others
        values |= {"held": lease_texts(held), "left": sorted(left)}
        found = _find(connection, capacities, values, **which, passing_over=True)


def _find(
    connection: Connection, capacities: Mapping[str, int], values: Mapping[str, Any], **which: bool
) -> list[Any]:
    names_by_capacity: defaultdict[int, list[str]] = defaultdict(list)
    for name, capacity in sorted(capacities.items()):
        if capacity > 0:
            names_by_capacity[capacity].append(name)
    # Mostly one number: the same for each handler without a limit.
    statement = _due_of_handlers(dialect_of(connection), **which)
    rows: list[Any] = []
    for capacity, names in names_by_capacity.items():
        rows += connection.execute(statement, {**values, "names": json.dumps(names), "capacity": capacity})
    return sorted(rows, key=lambda row: (row.due_at, row.run_id))


def find_suspect(
    connection: Connection,
    capacities: Mapping[str, int],
    now: datetime,
    only: int | None,
    held: Iterable[Lease],
) -> list[Any]:
    """Lock and return the due suspect to be tried next, if there is one, of a handler that has capacity.

    First those with the fewest attempts that count; those that were lost beside other runs come last. Runs
    of the leases in `held` are left out: their attempts are under way in this process.
    """
    values = {
        "now": now,
        "of_delivery": only,
        "names": [name for name, capacity in capacities.items() if capacity > 0],
    }
    values["held"] = lease_texts(held)
    return list(connection.execute(_due_suspect(of_one=only is not None), values))


def _due(table: FromClause, *conditions: ColumnElement[bool], of_one: bool) -> list[ColumnElement[bool]]:
    """Return the conditions of due runs of handlers that are not paused."""
    # Read by the claim and not before: no run starts once a pause is committed.
    paused = exists().where(handler.c.name == table.c.handler, IS_PAUSED)
    found = [*conditions, table.c.due_at <= _NOW, ~paused]
    return [*found, table.c.delivery_id == bindparam("of_delivery", type_=BigInteger)] if of_one else found


@cache
def _due_of_handlers(
    dialect: InboxDialect,
    *,
    of_one: bool,
    suspects: bool,
    from_time: bool = False,
    passing_over: bool = False,
) -> Select[Any]:
    """Build the statement that locks and returns the first due runs of some handlers, `capacity` of each.

    It looks them up in the index alone: no body is read for a row that is skipped. One that is `passing_over`
    leaves out runs by their leases, and by handler and event type.
    """

    def first(table: FromClause, name: ColumnElement[str], columns: Sequence[Any]) -> Select[Any]:
        is_due = table.c.state == literal_column(f"'{RunState.DUE.value}'", Text)
        conditions = _due(table, is_due, table.c.handler == name, of_one=of_one)
        if dialect.by_index:
            conditions.append(of_alias(CLAIMABLE, table))
        if from_time:
            conditions.append(table.c.due_at >= bindparam("due_from", type_=UtcDateTime))
        if not suspects:
            conditions.append(table.c.runs_alone == 0)
        if passing_over:
            conditions.append(of_alias(~in_parameter(LEASE, "held"), table))
            its = delivery.alias("its")
            kind = table.c.handler.concat("\n").concat(its.c.event_type)
            left = exists().where(its.c.id == table.c.delivery_id, in_parameter(kind, "left"))
            conditions.append(~left.correlate(table))
        found = select(*columns).where(*conditions).order_by(table.c.due_at, table.c.id)
        return found.limit(bindparam("capacity", type_=Integer))

    found, columns = dialect.first_of_each("names", first, CLAIMED_COLUMNS)
    of_it = {column.key: column for column in columns}["delivery_id"]
    return select(*columns, *STORED_COLUMNS).select_from(found.join(delivery, delivery.c.id == of_it))


@cache
def _due_suspect(*, of_one: bool) -> Select[Any]:
    has_capacity = in_parameter(run.c.handler, "names")
    conditions = _due(run, SUSPECT, has_capacity, ~in_parameter(LEASE, "held"), of_one=of_one)
    first = select(*CLAIMED_COLUMNS).where(*conditions)
    first = first.order_by(
        run.c.beside_others, run.c.attempts - run.c.uncounted_attempts, run.c.due_at, run.c.id
    )
    few = first.limit(1).with_for_update(of=run, skip_locked=True).cte("few")
    return select(few, *STORED_COLUMNS).join(delivery, delivery.c.id == few.c.delivery_id)
