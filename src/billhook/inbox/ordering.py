"""Taking turns: of the runs of one handler and one order key, one at a time is due, the earliest first.

All others wait. A waiting run is in no index that a claim or a look at the clock walks, so a key that is held
up for hours costs nothing; whoever finishes a run makes the next one due, in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Text,
    Update,
    bindparam,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY

from billhook.inbox.clauses import in_state
from billhook.inbox.schema import run
from billhook.inbox.states import RunState, check

__all__ = ["Key", "advance"]

Key = tuple[str, str]
"""The handler's name, and the order key."""


def _advance(keys: FromClause, handler: ColumnElement[str], order_key: ColumnElement[str]) -> Update:
    """For each of the keys the first entry that the index has of it; due from now on, if it waits."""
    own = run.alias("own")
    first = (
        select(own.c.id)
        .where(
            own.c.handler == handler,
            own.c.order_key == order_key,
            in_state(own.c.state, RunState.WAITING, RunState.DUE, RunState.RUNNING),  # as the index has it
        )
        # By the alphabet: due, running, waiting. One that is under way comes first, and then nothing is done.
        .order_by(own.c.state, own.c.delivery_id)
        .limit(literal_column("1"))
        .correlate(keys)
        .scalar_subquery()
    )
    return (
        update(run)
        .where(run.c.id.in_(select(first).select_from(keys)), in_state(run.c.state, RunState.WAITING))
        .values(state=RunState.DUE.value, due_at=bindparam("now", type_=run.c.due_at.type))
        .returning(run.c.delivery_id)
    )


_ARRAYS = [bindparam(name, type_=ARRAY(Text)) for name in ("handlers", "order_keys")]
_UNNESTED = func.unnest(*_ARRAYS).table_valued("handler", "order_key").render_derived(name="wanted")
_PAIRS = func.json_each(bindparam("pairs", type_=Text)).table_valued("value", name="wanted")
_PAIR = [func.json_extract(_PAIRS.c.value, literal_column(f"'$[{place}]'")) for place in (0, 1)]
_ON_POSTGRES = _advance(_UNNESTED, _UNNESTED.c.handler, _UNNESTED.c.order_key)
_ON_SQLITE = _advance(_PAIRS, *_PAIR)


def advance(connection: Connection, keys: Collection[Key], now: datetime) -> list[int]:
    """Make the first waiting run of each key due, where none is under way; returns their deliveries.

    First is the delivery that was stored first, however late its run was planned. A run that waits for
    another attempt is under way: it keeps its place. On PostgreSQL only under billhook.inbox.locks.
    """
    if not keys:
        return []
    check(RunState.WAITING, RunState.DUE)
    pairs = list(dict.fromkeys(keys))
    values: dict[str, Any] = {"now": now}
    if connection.dialect.name == "postgresql":
        statement = _ON_POSTGRES
        values |= {"handlers": [handler for handler, _ in pairs], "order_keys": [key for _, key in pairs]}
    else:
        statement = _ON_SQLITE
        values["pairs"] = json.dumps(pairs)
    return list(connection.execute(statement, values).scalars())
