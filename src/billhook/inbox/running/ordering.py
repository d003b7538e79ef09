"""Ordered runs: of the runs of one handler and one order key, one at a time is due, the earliest first.

All others wait. A waiting run is in no index that a claim or a poll reads, so a key that is blocked for hours
costs nothing. The transaction that finishes a run makes the next one due.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    FromClause,
    ScalarSelect,
    Select,
    Update,
    bindparam,
    literal_column,
    select,
    update,
)

from billhook.inbox.running.postponing import not_earlier
from billhook.inbox.tables.dialect import InboxDialect, dialect_of
from billhook.inbox.tables.handler_names import StoredNames
from billhook.inbox.tables.schema import ORDERED_RUN, UNFINISHED_RUN, run
from billhook.inbox.tables.sql import in_states, in_values, of_alias
from billhook.inbox.tables.states import RunState


class OrderKey(NamedTuple):
    """A handler and an order key of its runs; `newest_only`: of those that wait, it needs the newest only.

    As the column has it: 2 where the newest may not be the last to arrive, see inbox.running.superseding.
    `names` are all that its runs are stored under, where it has former ones: they are in one order.
    """

    handler: str
    value: str
    newest_only: bool | int = False
    names: tuple[str, ...] = ()


def with_names(keys: Iterable[OrderKey], names: StoredNames) -> list[OrderKey]:
    """Return the keys with the names that runs of their handlers are stored under.

    Every process uses the names in `stored_names`. A process of older or newer code that used the names of
    its own handlers would start a run beside another of its order, or leave one waiting for none.
    """
    return [key._replace(names=names.get(key.handler, ())) for key in keys]


def waiting_keys(connection: Connection, names: StoredNames) -> list[OrderKey]:
    """Return the order keys with which runs wait, of handlers with several names."""
    query = (
        select(run.c.handler, run.c.order_key)
        .where(ORDERED_RUN, run.c.state == RunState.WAITING.value, in_values(run.c.handler, sorted(names)))
        .distinct()
    )
    return with_names((OrderKey(*row) for row in connection.execute(query)), names)


_OF_KEYS = ("handler", "order_key")


def _first_of(keys: FromClause) -> ScalarSelect[int]:
    own = run.alias("own")
    return (
        select(own.c.id)
        .where(
            own.c.handler == keys.c.handler,
            own.c.order_key == keys.c.order_key,
            of_alias(UNFINISHED_RUN, own),
        )
        # Alphabetical: due, running, waiting. A due or running one comes first, and then nothing is updated.
        .order_by(own.c.state, own.c.delivery_id)
        .limit(literal_column("1"))
        .correlate(keys)
        .scalar_subquery()
    )


@cache
def _release_next_statement(dialect: InboxDialect) -> Update:
    """Build the update that makes the first run of each key due, by the index, if that run waits."""
    keys = dialect.texts("keys", *_OF_KEYS)
    return (
        update(run)
        .where(
            run.c.id.in_(select(_first_of(keys)).select_from(keys)), in_states(run.c.state, RunState.WAITING)
        )
        .values(state=RunState.DUE.value, due_at=not_earlier(bindparam("now", type_=run.c.due_at.type)))
        .returning(run.c.delivery_id)
    )


@cache
def _firsts_statement(dialect: InboxDialect) -> Select[Any]:
    """Build the query for the first run of each stored name and key, by the index."""
    keys = dialect.texts("keys", *_OF_KEYS)
    return select(keys.c.handler, keys.c.order_key, run.c.id, run.c.state, run.c.delivery_id).join_from(
        keys, run, run.c.id == _first_of(keys)
    )


def _release_next_of_several_names(
    connection: Connection, keys: Collection[OrderKey], now: datetime
) -> list[int]:
    """Do what `release_next` does for handlers whose runs are stored under several names."""
    lanes = {(name, key.value): (key.names, key.value) for key in keys for name in key.names}
    dialect = dialect_of(connection)
    found = connection.execute(
        _firsts_statement(dialect), dialect.texts_value("keys", _OF_KEYS, [*lanes])
    ).all()
    first: dict[tuple[tuple[str, ...], str], Any] = {}
    # Due, running, waiting; of several that wait the delivery that was stored first.
    for row in sorted(found, key=lambda row: (row.state, row.delivery_id)):
        first.setdefault(lanes[row.handler, row.order_key], row)
    waiting = [row.id for row in first.values() if row.state == RunState.WAITING.value]
    if not waiting:
        return []
    released = (
        update(run)
        .where(in_values(run.c.id, waiting), in_states(run.c.state, RunState.WAITING))
        .values(state=RunState.DUE.value, due_at=not_earlier(now))
        .returning(run.c.delivery_id)
    )
    return list(connection.execute(released).scalars())


def release_next(connection: Connection, keys: Collection[OrderKey], now: datetime) -> list[int]:
    """Make the first waiting run of each key due, where no run is due or running; returns their deliveries.

    A postponed run is due at its time. The first run is that of the delivery that was stored first,
    however late its run was planned. A run that waits for a retry is due already: it keeps its place. On
    PostgreSQL only under billhook.inbox.tables.locks.
    """
    several = [key for key in keys if len(key.names) > 1]
    released = _release_next_of_several_names(connection, several, now) if several else []
    pairs = list(dict.fromkeys((key.handler, key.value) for key in keys if len(key.names) <= 1))
    if not pairs:
        return released
    dialect = dialect_of(connection)
    values = dialect.texts_value("keys", _OF_KEYS, pairs) | {"now": now}
    return [*released, *connection.execute(_release_next_statement(dialect), values).scalars()]
