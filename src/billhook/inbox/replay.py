"""Doing it again: deliveries are read anew, and finished runs become due, in one transaction a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, exists, or_, select, update

from billhook.inbox.schema import delivery, run
from billhook.inbox.states import DeliveryState, RunState, check
from billhook.inbox.store import Inbox

__all__ = ["Replayed", "replay"]

_FINISHED = tuple(state.value for state in (RunState.SUCCEEDED, RunState.DISCARDED, RunState.DEAD))
# A delivery that is still received needs no replay: it has not been read the first time.
_REPLAYABLE = tuple(state.value for state in DeliveryState if state is not DeliveryState.RECEIVED)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: deliveries that are read anew, and runs that are due again."""

    deliveries: int = 0
    reread: int = 0
    runs: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(
            self.deliveries + other.deliveries, self.reread + other.reread, self.runs + other.runs
        )


def replay(
    inbox: Inbox,
    delivery_ids: Sequence[int],
    now: datetime,
    *,
    handler: str | None = None,
    all_handlers: bool = False,
    dry_run: bool = False,
) -> Replayed:
    """Replay these deliveries; ring `inbox.bell` after the last batch.

    A quarantined one, and one that nobody handled, is read anew. Of the others the failed runs become due:
    those that are dead, and those that wait for another attempt; with `handler` the runs of that name
    however they ended, with `all_handlers` every finished run. Attempts begin at 0; a run that is running
    is left alone. A `dry_run` counts and changes nothing.
    """
    which = _which(handler, all_handlers)
    transaction = inbox.database.read() if dry_run else inbox.database.write()
    with transaction as connection:
        return _replay(connection, delivery_ids, now, which, handler, dry_run=dry_run)


def _which(handler: str | None, all_handlers: bool) -> ColumnElement[bool]:
    """The runs that may be made due."""
    waiting = and_(run.c.state == RunState.DUE.value, run.c.attempts > 0)
    if handler is not None:
        return and_(run.c.handler == handler, or_(run.c.state.in_(_FINISHED), waiting))
    if all_handlers:
        return or_(run.c.state.in_(_FINISHED), waiting)
    return or_(run.c.state == RunState.DEAD.value, waiting)


def _replay(
    connection: Connection,
    delivery_ids: Sequence[int],
    now: datetime,
    which: ColumnElement[bool],
    handler: str | None,
    *,
    dry_run: bool,
) -> Replayed:
    query = select(delivery.c.id, delivery.c.state).where(
        delivery.c.id.in_(delivery_ids), delivery.c.state.in_(_REPLAYABLE)
    )
    if not dry_run:  # where there are row locks: a worker may be finishing the last run of one just now
        query = query.with_for_update()
    states = {row.id: DeliveryState(row.state) for row in connection.execute(query)}
    due = connection.execute(
        select(run.c.id, run.c.delivery_id, run.c.state).where(run.c.delivery_id.in_(states), which)
    ).all()
    reread = [] if handler is not None else _to_read_anew(connection, states)
    touched = {row.delivery_id for row in due}
    if not dry_run:
        _make_due(connection, {row.id: RunState(row.state) for row in due}, now)
        finished = {one: states[one] for one in touched if states[one] is not DeliveryState.PLANNED}
        _advance(connection, finished, DeliveryState.PLANNED)
        _advance(connection, {one: states[one] for one in reread}, DeliveryState.RECEIVED)
    return Replayed(len(touched) + len(reread), len(reread), len(due))


def _to_read_anew(connection: Connection, states: dict[int, DeliveryState]) -> list[int]:
    """Those that were never given to a handler: quarantined, or done because nobody listened."""
    unheard = (DeliveryState.QUARANTINED, DeliveryState.DONE)
    candidates = [one for one, state in states.items() if state in unheard]
    has_run = exists().where(run.c.delivery_id == delivery.c.id)
    query = select(delivery.c.id).where(delivery.c.id.in_(candidates), ~has_run)
    return list(connection.execute(query).scalars())


def _make_due(connection: Connection, states: dict[int, RunState], now: datetime) -> None:
    for state in set(states.values()) - {RunState.DUE}:
        check(state, RunState.DUE)
    connection.execute(
        update(run)
        .where(run.c.id.in_(states), run.c.state.in_({state.value for state in states.values()}))
        # The token grows: an outcome that an earlier attempt reports late must find nothing.
        .values(
            state=RunState.DUE.value,
            attempts=0,
            due_at=now,
            token=run.c.token + 1,
            lease_owner=None,
            finished_at=None,
        )
    )


def _advance(connection: Connection, states: dict[int, DeliveryState], after: DeliveryState) -> None:
    for before in set(states.values()):
        check(before, after)
        same = [one for one, state in states.items() if state is before]
        connection.execute(
            update(delivery)
            .where(delivery.c.id.in_(same), delivery.c.state == before.value)
            .values(state=after.value, error=None)
        )
