"""Claim due runs: find them by their handlers, lock them, and mark them as running.

A row that another worker is claiming is skipped, never waited for. Only the claim decides who runs what: a
run is claimed by the statement that raises its token, and the result of an earlier claim then matches no row.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Select,
    Text,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal_column,
    select,
    true,
    update,
)

from billhook.inbox.leases import LOST_NOT_ALONE
from billhook.inbox.limits import IS_PAUSED
from billhook.inbox.pending import STORED_COLUMNS, SUSPECT
from billhook.inbox.records import Claim, StoredDelivery
from billhook.inbox.schema import delivery, handler, run
from billhook.inbox.sql import UtcDateTime, in_parameter, in_states
from billhook.inbox.states import RunState

_NOW = bindparam("now", type_=UtcDateTime)
_CLAIMED = (
    run.c.id.label("run_id"),
    run.c.token,
    run.c.handler,
    run.c.attempts,
    run.c.lease_owner,
    run.c.delivery_id,
    run.c.due_at,
    run.c.runs_alone,
    run.c.excused_attempts,
    run.c.replays,
    run.c.order_key,
)
_START = (
    update(run)
    .where(in_parameter(run.c.id, "run_ids"))
    .values(
        state=RunState.RUNNING.value,
        attempts=run.c.attempts + 1,
        # The fencing token: from here on, the result of an earlier attempt matches no run.
        token=run.c.token + 1,
        due_at=bindparam("leased_until", type_=UtcDateTime),
        lease_owner=bindparam("owner", type_=Text),
        started_at=_NOW,
        duration_seconds=None,
    )
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
    connection: Connection, rooms: Mapping[str, int], now: datetime, only: int | None
) -> list[Any]:
    """Lock and return the due suspect to be tried next, if there is one, of a handler that has room.

    First those with the fewest attempts that count; those that were lost beside other runs come last.
    """
    values = {"now": now, "of_delivery": only, "names": [name for name, room in rooms.items() if room > 0]}
    return list(connection.execute(_due_suspect(of_one=only is not None), values))


def mark_running(
    connection: Connection, rows: Sequence[Any], owner: str, now: datetime, leased_until: datetime
) -> list[Claim]:
    """Claim the runs of these rows, which this transaction has locked, for a lease's owner."""
    if not rows:
        return []
    run_ids = [row.run_id for row in rows]
    values = {"run_ids": run_ids, "now": now, "leased_until": leased_until, "owner": owner}
    connection.execute(_START, values)
    return [
        Claim(
            row.run_id,
            row.token + 1,
            row.handler,
            row.attempts + 1,
            leased_until,
            StoredDelivery(*row[len(_CLAIMED) :]),
            row.excused_attempts,
            row.runs_alone == 1,
            row.replays,
            row.order_key is not None,
        )
        for row in rows
    ]


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
    columns = (table.c.id,) if dialect == "sqlite" else _CLAIMED
    first = select(*columns).where(*conditions).order_by(table.c.due_at, table.c.id)
    first = first.limit(bindparam("room", type_=Integer)).correlate(wanted)
    if dialect == "sqlite":  # it has no LATERAL, and no other transaction that writes
        found = wanted.join(run, run.c.id.in_(first)).join(delivery, delivery.c.id == run.c.delivery_id)
        return select(*_CLAIMED, *STORED_COLUMNS).select_from(found)
    few = first.with_for_update(of=run, skip_locked=True).lateral("few")
    locked = wanted.join(few, true()).join(delivery, delivery.c.id == few.c.delivery_id)
    return select(few, *STORED_COLUMNS).select_from(locked)


@cache
def _due_suspect(*, of_one: bool) -> Select[Any]:
    not_alone = case((run.c.lease_owner == LOST_NOT_ALONE, 1), else_=0)
    has_room = in_parameter(run.c.handler, "names")
    first = select(*_CLAIMED).where(*_due(run, SUSPECT, has_room, of_one=of_one))
    first = first.order_by(not_alone, run.c.attempts - run.c.excused_attempts, run.c.due_at, run.c.id)
    few = first.limit(1).with_for_update(of=run, skip_locked=True).cte("few")
    return select(few, *STORED_COLUMNS).join(delivery, delivery.c.id == few.c.delivery_id)
