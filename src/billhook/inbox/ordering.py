"""Ordered runs: of the runs of one handler and one order key, one at a time is due, the earliest first.

All others wait. A waiting run is in no index that a claim or a poll reads, so a key that is blocked for hours
costs nothing. The transaction that finishes a run makes the next one due. Where only the newest counts, the
transaction that makes or finishes a run discards the older ones that wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from functools import cache
from typing import NamedTuple

from sqlalchemy import Connection, Text, Update, bindparam, func, literal_column, select, update

from billhook.inbox.counts import as_above_watermark
from billhook.inbox.dialect import InboxDialect, dialect_of
from billhook.inbox.records import UncalledRun
from billhook.inbox.schema import UNFINISHED_RUN, delivery, run
from billhook.inbox.sql import UtcDateTime, in_parameter, in_states, of_alias
from billhook.inbox.states import RunState


class OrderKey(NamedTuple):
    """A handler and an order key of its runs; `newest_only`: of those that wait, it needs the newest only."""

    handler: str
    value: str
    newest_only: bool | int = False


_OF_KEYS = ("handler", "order_key")


@cache
def _release_next_statement(dialect: InboxDialect) -> Update:
    """Build the update that makes the first run of each key due, by the index, if that run waits."""
    keys = dialect.texts("keys", *_OF_KEYS)
    own = run.alias("own")
    first = (
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
    return (
        update(run)
        .where(run.c.id.in_(select(first).select_from(keys)), in_states(run.c.state, RunState.WAITING))
        .values(state=RunState.DUE.value, due_at=bindparam("now", type_=run.c.due_at.type))
        .returning(run.c.delivery_id)
    )


def release_next(connection: Connection, keys: Collection[OrderKey], now: datetime) -> list[int]:
    """Make the first waiting run of each key due, where no run is due or running; returns their deliveries.

    First is the delivery that was stored first, however late its run was planned. A run that waits for a
    retry is due already: it keeps its place. On PostgreSQL only under billhook.inbox.locks.
    """
    if not keys:
        return []
    pairs = list(dict.fromkeys((key.handler, key.value) for key in keys))
    dialect = dialect_of(connection)
    values = dialect.texts_value("keys", _OF_KEYS, pairs) | {"now": now}
    return list(connection.execute(_release_next_statement(dialect), values).scalars())


_NEWEST = run.alias("newest")
_OF_KEY = (
    run.c.handler == bindparam("of_handler", type_=Text),
    run.c.order_key == bindparam("of_key", type_=Text),
    UNFINISHED_RUN,
)
_NEWEST_OF_KEY = (
    select(func.max(_NEWEST.c.delivery_id))
    .where(
        _NEWEST.c.handler == bindparam("of_handler", type_=Text),
        _NEWEST.c.order_key == bindparam("of_key", type_=Text),
        of_alias(UNFINISHED_RUN, _NEWEST),
    )
    .scalar_subquery()
)
_OLDER = (
    select(run.c.delivery_id, _NEWEST_OF_KEY.label("newest"))
    .join(delivery, delivery.c.id == run.c.delivery_id)
    .where(
        *_OF_KEY,
        in_states(run.c.state, RunState.WAITING, RunState.DUE),
        # One that was planned before the handler had this option is handled.
        run.c.newest_only == 1,
        # The process of an interrupted attempt may not have ended yet: it is repeated at its time.
        run.c.uncounted_attempts == 0,
        run.c.delivery_id < _NEWEST_OF_KEY,
    )
    # Their deliveries are finished too, out of the order of locks: what another transaction has waits on.
    .with_for_update(of=delivery, key_share=True, skip_locked=True)
)
_SUPERSEDE = (
    update(run)
    .where(
        *_OF_KEY,
        in_states(run.c.state, RunState.WAITING, RunState.DUE),
        in_parameter(run.c.delivery_id, "older"),
    )
    .values(
        state=RunState.DISCARDED.value,
        last_error=bindparam("why", type_=Text),
        finished_at=as_above_watermark(bindparam("now", type_=UtcDateTime)),
    )
    .returning(run.c.delivery_id)
)


def discard_superseded(connection: Connection, keys: Iterable[OrderKey], now: datetime) -> list[UncalledRun]:
    """Discard what waits although a newer delivery of its key does, where only the newest counts.

    However many wait: none is claimed for it, so that the newest is called however fast newer ones come. One
    that is claimed goes on. The caller finishes the deliveries. On PostgreSQL only under
    billhook.inbox.locks.
    """
    found: list[UncalledRun] = []
    for handler, value, newest_only in dict.fromkeys(keys):
        if not newest_only:
            continue
        of_key = {"of_handler": handler, "of_key": value}
        older = connection.execute(_OLDER, of_key).all()
        if older:
            newest = older[0].newest
            values = {"why": f"superseded by delivery {newest}", "now": now}
            values |= {"older": [each.delivery_id for each in older]}
            gone = connection.execute(_SUPERSEDE, of_key | values)
            found += [UncalledRun(delivery_id, handler, newest) for delivery_id in gone.scalars()]
    return found
