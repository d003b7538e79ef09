"""Claim due runs: find them by their handlers, lock them, and mark them as running.

A row that another worker is claiming is skipped, never waited for. Only the claim decides who runs what: a
run is claimed by the statement that raises its token, and the result of an earlier claim then matches no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Select,
    Text,
    bindparam,
    case,
    exists,
    func,
    select,
    true,
    update,
)

from billhook.inbox.leases import LOST_NOT_ALONE
from billhook.inbox.limits import IS_PAUSED
from billhook.inbox.pending import CLAIMABLE, STORED_COLUMNS, SUSPECT
from billhook.inbox.records import Claim, StoredDelivery
from billhook.inbox.schema import delivery, handler, run
from billhook.inbox.sql import UtcDateTime, in_parameter
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
)
_IN_ORDER = (run.c.due_at, run.c.id)
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
    wanted = [(name, room) for name, room in sorted(rooms.items()) if room > 0]
    values: dict[str, Any] = {"now": now, "of_delivery": only}
    of_one = only is not None
    if connection.dialect.name == "postgresql" and wanted:
        statement = _due_of_all(of_one=of_one, suspects=suspects)
        names, numbers = zip(*wanted, strict=True)
        values |= {"names": list(names), "rooms": list(numbers)}
        rows = list(connection.execute(statement, values))
    else:  # within this process, a statement costs as little as a row of a larger one
        statement = _due_of_one_handler(of_one=of_one, suspects=suspects)
        each = ({**values, "name": name, "room": room} for name, room in wanted)
        rows = [row for parameters in each for row in connection.execute(statement, parameters)]
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
        )
        for row in rows
    ]


# --- statements ---------------------------------------------------------------------------------------


def _due(*conditions: ColumnElement[bool], of_one: bool) -> Select[Any]:
    """Build the statement that locks due runs by their index: no body is read for a skipped row."""
    # Read here and not before: no run starts once a pause is committed.
    paused = exists().where(handler.c.name == run.c.handler, IS_PAUSED)
    query = select(*_CLAIMED).where(*conditions, run.c.due_at <= _NOW, ~paused)
    if of_one:
        query = query.where(run.c.delivery_id == bindparam("of_delivery", type_=BigInteger))
    return query.with_for_update(of=run, skip_locked=True)


def _with_deliveries(few: FromClause, *before: FromClause) -> Select[Any]:
    source = few
    for table in before:
        source = table.join(few, true())
    return select(few, *STORED_COLUMNS).select_from(source.join(delivery, delivery.c.id == few.c.delivery_id))


def _due_of_handler(
    name: ColumnElement[str], room: ColumnElement[int], *, of_one: bool, suspects: bool
) -> Select[Any]:
    conditions = [CLAIMABLE, run.c.state == RunState.DUE.value, run.c.handler == name]
    if not suspects:
        conditions.append(run.c.runs_alone == 0)
    return _due(*conditions, of_one=of_one).order_by(*_IN_ORDER).limit(room)


@cache
def _due_of_one_handler(*, of_one: bool, suspects: bool) -> Select[Any]:
    name, room = bindparam("name", type_=Text), bindparam("room", type_=Integer)
    return _with_deliveries(_due_of_handler(name, room, of_one=of_one, suspects=suspects).cte("few"))


@cache
def _due_of_all(*, of_one: bool, suspects: bool) -> Select[Any]:
    """Build the same for several handlers, in one statement of PostgreSQL."""
    given = bindparam("names", type_=ARRAY(Text)), bindparam("rooms", type_=ARRAY(Integer))
    wanted = func.unnest(*given).table_valued("name", "room").render_derived(name="wanted")
    few = _due_of_handler(wanted.c.name, wanted.c.room, of_one=of_one, suspects=suspects).correlate(wanted)
    return _with_deliveries(few.lateral("few"), wanted)


@cache
def _due_suspect(*, of_one: bool) -> Select[Any]:
    not_alone = case((run.c.lease_owner == LOST_NOT_ALONE, 1), else_=0)
    order = (not_alone, run.c.attempts - run.c.excused_attempts, *_IN_ORDER)
    has_room = in_parameter(run.c.handler, "names")
    return _with_deliveries(_due(SUSPECT, has_room, of_one=of_one).order_by(*order).limit(1).cte("few"))
