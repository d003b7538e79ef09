"""Ordered runs: of the runs of one handler and one order key, one at a time is due, the earliest first.

All others wait. A waiting run is in no index that a claim or a poll reads, so a key that is blocked for hours
costs nothing. The transaction that finishes a run makes the next one due.
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

from billhook.inbox.schema import run
from billhook.inbox.sql import in_states
from billhook.inbox.states import RunState

__all__ = ["OrderKey", "release_next"]

OrderKey = tuple[str, str]
"""The handler's name and the order key."""


def _release_next_statement(
    keys: FromClause, handler: ColumnElement[str], order_key: ColumnElement[str]
) -> Update:
    """Build the update that makes the first run of each key due, by the index, if that run waits."""
    own = run.alias("own")
    first = (
        select(own.c.id)
        .where(
            own.c.handler == handler,
            own.c.order_key == order_key,
            in_states(
                own.c.state, RunState.WAITING, RunState.DUE, RunState.RUNNING
            ),  # so that the partial index applies
        )
        # Alphabetical: due, running, waiting. A due or running one comes first, and then nothing is updated.
        .order_by(own.c.state, own.c.delivery_id)
        .limit(literal_column("1"))
        .correlate(keys)
        .scalar_subquery()
    )
    return (
        update(run)
        .where(run.c.id.in_(select(first).select_from(keys)), in_states(run.c.state, RunState.WAITING))
        .values(state=RunState.DUE.value, due_at=bindparam("now", type_=run.c.due_at.type))
        .returning(run.c.delivery_id)
    )


_ARRAYS = [bindparam(name, type_=ARRAY(Text)) for name in ("handlers", "order_keys")]
_UNNESTED = func.unnest(*_ARRAYS).table_valued("handler", "order_key").render_derived(name="wanted")
_PAIRS = func.json_each(bindparam("pairs", type_=Text)).table_valued("value", name="wanted")
_PAIR = [func.json_extract(_PAIRS.c.value, literal_column(f"'$[{place}]'")) for place in (0, 1)]
_ON_POSTGRES = _release_next_statement(_UNNESTED, _UNNESTED.c.handler, _UNNESTED.c.order_key)
_ON_SQLITE = _release_next_statement(_PAIRS, *_PAIR)


def release_next(connection: Connection, keys: Collection[OrderKey], now: datetime) -> list[int]:
    """Make the first waiting run of each key due, where no run is due or running; returns their deliveries.

    First is the delivery that was stored first, however late its run was planned. A run that waits for a
    retry is due already: it keeps its place. On PostgreSQL only under billhook.inbox.locks.
    """
    if not keys:
        return []
    pairs = list(dict.fromkeys(keys))
    values: dict[str, Any] = {"now": now}
    if connection.dialect.name == "postgresql":
        statement = _ON_POSTGRES
        values |= {"handlers": [handler for handler, _ in pairs], "order_keys": [key for _, key in pairs]}
    else:
        statement = _ON_SQLITE
        values["pairs"] = json.dumps(pairs)
    return list(connection.execute(statement, values).scalars())
