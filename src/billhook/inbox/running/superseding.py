"""Superseded runs: of those of one handler and order key that wait, the newest is needed (`newest_only`).

The transaction that makes or finishes a run discards the older ones. The newest is the last to arrive, or, by
`newest_by`, the one whose `newest_key` is the greatest, as of four deliveries of one key:

    id 1, of 10:02   handled
    id 2, of 10:01   discarded when it is planned: a newer one has been handled
    id 3, of 10:05   waits, and is handled
    id 4, of 10:04   discarded: a newer one waits

One that does not say how new it is, or is as new as the other, is compared with it by arrival. A newer one
that is dead, discarded or quarantined supersedes none; while it is running, the older one waits for its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Text,
    Update,
    bindparam,
    func,
    literal_column,
    select,
    union_all,
    update,
)

from billhook.inbox.counting.counts import as_above_watermark
from billhook.inbox.running.ordering import OrderKey
from billhook.inbox.tables.records import UncalledRun
from billhook.inbox.tables.schema import HANDLED_NEWEST, UNFINISHED_RUN, delivery, run
from billhook.inbox.tables.sql import UtcDateTime, in_parameter, in_states, of_alias
from billhook.inbox.tables.states import RunState

NEWEST_BY_KEY = 2
"""In the column newest_only: newest_key says which is the newest. 1: by arrival; 0: all are needed."""
_WAITS = in_states(run.c.state, RunState.WAITING, RunState.DUE)
# The process of an interrupted attempt may not have ended yet: it is repeated at its time.
_NOT_INTERRUPTED = run.c.uncounted_attempts == run.c.postponements


def discard_superseded(connection: Connection, keys: Iterable[OrderKey], now: datetime) -> list[UncalledRun]:
    """Discard the waiting runs of a key that have a newer delivery, where only the newest counts.

    However many wait: none is claimed for it, so that the newest is called however fast newer ones come. One
    that is claimed goes on. The caller finishes the deliveries. On PostgreSQL only under
    billhook.inbox.tables.locks.
    """
    found: list[UncalledRun] = []
    for key in dict.fromkeys(keys):
        if not key.newest_only:
            continue
        several = len(key.names) > 1
        of_key: dict[str, Any] = {"of_key": key.value}
        of_key |= {"of_names": list(key.names)} if several else {"of_handler": key.handler}
        if key.newest_only == NEWEST_BY_KEY:
            newer = _newer_by_key(connection, of_key, several=several)
        else:
            older = connection.execute(_older_by_arrival(several=several), of_key)
            newer = {delivery_id: _Newer(newest) for delivery_id, newest in older}
        found += _discard(connection, of_key, newer, now, several=several)
    return found


class _Newer(NamedTuple):
    """The delivery that supersedes another, and what is added to the reason."""

    delivery_id: int
    more: str = ""


def _discard(
    connection: Connection,
    of_key: Mapping[str, Any],
    newer: Mapping[int, _Newer],
    now: datetime,
    *,
    several: bool,
) -> list[UncalledRun]:
    """Discard the runs of a key of these deliveries, each for its newer one."""
    of_newer: dict[_Newer, list[int]] = {}
    for delivery_id, other in newer.items():
        of_newer.setdefault(other, []).append(delivery_id)
    found = []
    for other, older in of_newer.items():
        values = {**of_key, "why": f"superseded by delivery {other.delivery_id}{other.more}", "now": now}
        gone = connection.execute(_supersede(several=several), {**values, "older": older})
        found += [UncalledRun(delivery_id, name, other.delivery_id) for delivery_id, name in gone]
    return found


def _of_key(table: FromClause, *conditions: ColumnElement[bool], several: bool) -> list[ColumnElement[bool]]:
    name = table.c.handler
    of_handler = in_parameter(name, "of_names") if several else name == bindparam("of_handler", type_=Text)
    return [of_handler, table.c.order_key == bindparam("of_key", type_=Text), *conditions]


def _skipping_locked(query: Select[Any]) -> Select[Any]:
    # Their deliveries are finished too, out of the order of locks: what another transaction has waits on.
    return query.with_for_update(of=delivery, key_share=True, skip_locked=True)


@cache
def _older_by_arrival(*, several: bool) -> Select[Any]:
    """Build the query for what is superseded in a key by what arrived last: delivery, and that one."""
    other = run.alias("newest")
    newest = (
        select(func.max(other.c.delivery_id))
        .where(*_of_key(other, of_alias(UNFINISHED_RUN, other), several=several))
        .scalar_subquery()
    )
    # One that was planned before the handler had this option is handled.
    conditions = (UNFINISHED_RUN, _WAITS, run.c.newest_only == 1, _NOT_INTERRUPTED)
    older = (
        select(run.c.delivery_id, newest.label("newest"))
        .join(delivery, delivery.c.id == run.c.delivery_id)
        .where(*_of_key(run, *conditions, several=several), run.c.delivery_id < newest)
    )
    return _skipping_locked(older)


@cache
def _supersede(*, several: bool) -> Update:
    """Build the update that discards runs of a key that wait."""
    return (
        update(run)
        .where(*_of_key(run, UNFINISHED_RUN, _WAITS, several=several))
        .where(in_parameter(run.c.delivery_id, "older"))
        .values(
            state=RunState.DISCARDED.value,
            last_error=bindparam("why", type_=Text),
            finished_at=as_above_watermark(bindparam("now", type_=UtcDateTime)),
        )
        .returning(run.c.delivery_id, run.c.handler)
    )


class _WaitingRun(NamedTuple):
    """A run that waits: its delivery, its newest_key (empty without one), and whether it may be discarded."""

    delivery_id: int
    key: str
    may_go: int


def _is_newer(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether `one` is newer than `other`: both have a delivery and a newest_key first."""
    if one[1] and other[1] and one[1] != other[1]:
        return bool(one[1] > other[1])
    return bool(one[0] > other[0])


def _newer_by_key(connection: Connection, of_key: Mapping[str, Any], *, several: bool) -> dict[int, _Newer]:
    """Return the deliveries of a key that are superseded by a newest_key, each with its newer one."""
    waiting = [_WaitingRun(*row) for row in connection.execute(_waiting_of_key(several=several), of_key)]
    superseded: dict[int, _Newer] = {}
    if any(one.may_go for one in waiting):
        # Of one that does not say, every later arrival is newer.
        query = _newest_handled(several=several, of_any=not all(one.key for one in waiting))
        handled = connection.execute(query, of_key).all()
        for one in waiting:
            newer = [each for each in handled if _is_newer(each, one)]
            if newer:
                # Of one that does not say how new it is, the last to arrive.
                by = max(newer, key=lambda each: (one.key and each.newest_key, each.delivery_id))
                why = ", which is newer and has been handled"
                superseded[one.delivery_id] = _Newer(by.delivery_id, why)
    left = [one for one in waiting if one.delivery_id not in superseded]
    if left:
        # The greatest key, but for a later arrival that has none.
        newest = max(left, key=lambda one: (one.key, one.delivery_id))
        later = [one for one in left if not one.key and one.delivery_id > newest.delivery_id]
        newest = max([newest, *later], key=lambda one: one.delivery_id)
        other = _Newer(newest.delivery_id, ", which is newer")
        superseded |= {one.delivery_id: other for one in left if one is not newest}
    gone = [one.delivery_id for one in waiting if one.may_go and one.delivery_id in superseded]
    if not gone:
        return {}
    locked = connection.execute(_locked(), {"delivery_ids": gone}).scalars()
    return {delivery_id: superseded[delivery_id] for delivery_id in locked}


@cache
def _waiting_of_key(*, several: bool) -> Select[Any]:
    may_go = (run.c.newest_only == NEWEST_BY_KEY) & _NOT_INTERRUPTED
    columns = (run.c.delivery_id, func.coalesce(run.c.newest_key, ""), may_go)
    return select(*columns).where(*_of_key(run, UNFINISHED_RUN, _WAITS, several=several))


@cache
def _newest_handled(*, several: bool, of_any: bool) -> Any:
    """Build the query for what has been handled of a key: the newest, and the last that does not say.

    It reads them by the index, and no other runs that are kept, except the last arrival `of_any` key.
    """

    def last(*order: ColumnElement[Any], **more: Any) -> Select[Any]:
        found = run.alias(None)
        conditions = _of_key(found, of_alias(HANDLED_NEWEST, found), several=several)
        query = select(found.c.delivery_id, found.c.newest_key).where(*conditions)
        if more:
            query = query.where(found.c.newest_key == "")
        by = [of_alias(each, found).desc() for each in order]
        return select(query.order_by(*by).limit(literal_column("1")).subquery())

    queries = [last(run.c.newest_key, run.c.delivery_id), last(run.c.delivery_id, missing=True)]
    if of_any:
        queries.append(last(run.c.delivery_id))
    return union_all(*queries)


@cache
def _locked() -> Select[Any]:
    query = select(delivery.c.id).where(in_parameter(delivery.c.id, "delivery_ids")).order_by(delivery.c.id)
    return _skipping_locked(query)
