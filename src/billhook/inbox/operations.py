"""What operators do with deliveries: replay, discard or erase them, in one transaction a batch.

With a `dry_run` each counts what it would do, and changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Self

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from billhook.inbox.counts import above_watermark, keeping
from billhook.inbox.inbox import Inbox
from billhook.inbox.issues import clear_texts
from billhook.inbox.leases import NOT_CLAIMED
from billhook.inbox.limits import forget_errors
from billhook.inbox.locks import lock_counts, lock_deliveries, lock_order
from billhook.inbox.ordering import OrderKey, discard_superseded, release_next
from billhook.inbox.planning import make_runs
from billhook.inbox.records import RunOptions, RunPlan, StoredDelivery
from billhook.inbox.retention import FINISHED
from billhook.inbox.runs import finish_deliveries
from billhook.inbox.schema import IDENTIFIERS, NO_IDENTIFIERS, NO_REASON, delivery, failure, run
from billhook.inbox.sql import in_states, in_values
from billhook.inbox.states import DeliveryState, RunState, check
from billhook.inbox.unread import STORED_COLUMNS

_FINISHED_RUN = in_states(run.c.state, RunState.SUCCEEDED, RunState.DISCARDED, RunState.DEAD)
_UNFINISHED = (DeliveryState.RECEIVED, DeliveryState.PLANNED)
_UNHANDLED = (DeliveryState.RECEIVED, DeliveryState.QUARANTINED)
# A delivery that is still received needs no replay, and a pruned one has nothing to replay.
_HANDLED = (DeliveryState.PLANNED, DeliveryState.DONE, DeliveryState.DEAD)
_RUN_COLUMNS = (run.c.id, run.c.delivery_id, run.c.state, run.c.handler, run.c.order_key, run.c.newest_only)
# Not in the words of an index: these runs are found by their deliveries.
_OPEN = (RunState.WAITING, RunState.DUE, RunState.RUNNING, RunState.DEAD)
_LOG_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Result:
    """What was done to some deliveries; results of batches can be added."""

    deliveries: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@contextmanager
def _transaction(
    inbox: Inbox, delivery_ids: Sequence[int], *, dry_run: bool, any_order: bool = False
) -> Iterator[Connection]:
    """Open a transaction with the locks of counts, of these deliveries, and of their order or `any_order`.

    Locked before reading: a worker may be settling them. For a `dry_run` open a snapshot.
    """
    with inbox.database.read() if dry_run else inbox.database.write() as connection:
        if not dry_run:
            lock_counts(connection)
            lock_order(connection, None if any_order else delivery_ids)
            lock_deliveries(connection, delivery_ids)
        yield connection


def _states(
    connection: Connection,
    delivery_ids: Sequence[int],
    *among: DeliveryState,
    which: ColumnElement[bool] | None = None,
) -> dict[int, DeliveryState]:
    """Return the states of those of the deliveries that are in one of these, and `which` holds for."""
    query = select(delivery.c.id, delivery.c.state).where(
        in_values(delivery.c.id, delivery_ids), in_states(delivery.c.state, *among)
    )
    if which is not None:
        query = query.where(which)
    return {row.id: DeliveryState(row.state) for row in connection.execute(query)}


def _change(
    connection: Connection,
    states: Mapping[int, DeliveryState],
    delivery_ids: Collection[int],
    after: DeliveryState,
    **values: Any,
) -> None:
    """Set the state of these deliveries; `states` has their present ones. Raises IllegalTransition."""
    before = {states[delivery_id] for delivery_id in delivery_ids}
    for state in before:
        check(state, after)
    if before:
        same = (in_values(delivery.c.id, delivery_ids), in_states(delivery.c.state, *sorted(before)))
        connection.execute(update(delivery).where(*same).values(state=after.value, **values))


Backfill = Callable[[StoredDelivery, Collection[str]], RunOptions | None]
"""Options of a new run, for a delivery and the names of handlers with runs of it; None for no run."""


@dataclass(frozen=True, slots=True)
class ReplayResult(_Result):
    """Deliveries replayed; of them `requeued` to be planned again; runs made due again; runs `added`."""

    requeued: int = 0
    runs: int = 0
    added: int = 0


def replay(
    inbox: Inbox,
    delivery_ids: Sequence[int],
    now: datetime,
    *,
    handler: str | None = None,
    only_failed: bool = False,
    backfill: Backfill | None = None,
    all_handlers: bool = False,
    as_type: str | None = None,
    type_field: str | None = None,
    due: Callable[[int], datetime] | None = None,
    dry_run: bool = False,
) -> ReplayResult:
    """Replay these deliveries; call `inbox.waker.wake()` after the last batch.

    A quarantined delivery, and one without runs, is planned again. Of the others the failed runs become due:
    dead ones, and those that wait for a retry; with `handler` those of that name in any finished state, or
    `only_failed` ones; with `all_handlers` every finished run. Attempts start at 0. A run that is running or
    waits in its order is left alone; an ordered one goes back to its place, or is discarded again where only
    the newest counts and a newer one is unfinished. `backfill` makes first runs. With `as_type` deliveries
    without runs are planned again as this type; with `type_field` those without a type are, as the type in
    this field of their bodies, but for conflicts. Without both a delivery without a type is left alone,
    unless it has a field to be read again. `due` returns when the run of an index in this batch is due, by
    default `now`: for a rate that holds without a process that waits.
    """
    # New runs may be ordered: then the lock is that of any order.
    with _transaction(inbox, delivery_ids, dry_run=dry_run, any_order=backfill is not None) as connection:
        replayable = (*_HANDLED, DeliveryState.QUARANTINED)
        readable = or_(delivery.c.event_type != "", delivery.c.type_field.is_not(None))
        which = None if as_type is not None else readable
        if type_field is not None:
            which = and_(delivery.c.event_type == "", delivery.c.conflict_of.is_(None))
        states = _states(connection, delivery_ids, *replayable, which=which)
        again: Sequence[Any] = ()
        plans: list[RunPlan] = []
        if as_type is None:
            own = (in_values(run.c.delivery_id, states), _which(handler, all_handlers, only_failed))
            again = connection.execute(select(*_RUN_COLUMNS).where(*own).order_by(run.c.id)).all()
            plans = _backfill_plans(connection, states, handler, backfill) if handler and backfill else []
        requeued = _to_read_anew(connection, states) if handler is None or as_type is not None else []
        touched = {row.delivery_id for row in again} | {planned.delivery_id for planned in plans}
        if not dry_run:
            finished = [number for number in touched if states[number] is not DeliveryState.PLANNED]
            sent_as = func.coalesce(delivery.c.sent_as, delivery.c.event_type)
            named: dict[str, Any] = {} if type_field is None else {"type_field": type_field}
            if as_type is not None:
                named = {"event_type": as_type, "sent_as": sent_as}
            with keeping(connection, states, inbox.known_types):
                _change(connection, states, finished, DeliveryState.PLANNED, **NO_REASON)
                _change(connection, states, requeued, DeliveryState.RECEIVED, **NO_REASON, **named)
                _make_due(connection, again, now, due)
            make_runs(connection, plans, now)
    return ReplayResult(len(touched) + len(requeued), len(requeued), len(again), len(plans))


def _which(handler: str | None, all_handlers: bool, only_failed: bool) -> ColumnElement[bool]:
    """Return which runs may be made due."""
    failed = and_(run.c.state == RunState.DUE.value, run.c.attempts > 0)
    broken = or_(run.c.state == RunState.DEAD.value, failed)
    if handler is not None:
        return and_(run.c.handler == handler, broken if only_failed else or_(_FINISHED_RUN, failed))
    return or_(_FINISHED_RUN, failed) if all_handlers else broken


def store_edited(inbox: Inbox, edited: StoredDelivery, planned: RunPlan, original: int) -> int:
    """Store the edited copy of a delivery with the runs that are planned for it; return its id."""
    names = ("source", "key", "event_type", "sent_as", "headers", "received_at", "body")
    values: dict[str, Any] = {name: getattr(edited, name) for name in names}
    values |= {"digest": sha256(edited.body).digest(), "edited_from": original}
    values |= zip((column.name for column in IDENTIFIERS), planned.identifiers, strict=False)
    with inbox.database.write() as connection:
        lock_order(connection)
        row = insert(delivery).values(**values, state=DeliveryState.PLANNED.value)
        delivery_id: int = connection.execute(row.returning(delivery.c.id)).scalar_one()
        make_runs(connection, [planned._replace(delivery_id=delivery_id)], edited.received_at)
    return delivery_id


def _to_read_anew(connection: Connection, states: Mapping[int, DeliveryState]) -> list[int]:
    """Return those without runs: quarantined, or done because they had no handler."""
    unheard = (DeliveryState.QUARANTINED, DeliveryState.DONE)
    candidates = [one for one, state in states.items() if state in unheard]
    has_run = exists().where(run.c.delivery_id == delivery.c.id)
    query = select(delivery.c.id).where(in_values(delivery.c.id, candidates), ~has_run)
    return list(connection.execute(query).scalars())


def _backfill_plans(
    connection: Connection, states: Mapping[int, DeliveryState], handler: str, backfill: Backfill
) -> list[RunPlan]:
    """Plan new runs of deliveries that were handled before this handler existed, oldest first."""
    handled = [delivery_id for delivery_id, state in states.items() if state in _HANDLED]
    names: dict[int, list[str]] = {delivery_id: [] for delivery_id in handled}
    of_these = select(run.c.delivery_id, run.c.handler).where(in_values(run.c.delivery_id, handled))
    for delivery_id, name in connection.execute(of_these):
        names[delivery_id].append(name)
    without = [delivery_id for delivery_id in handled if handler not in names[delivery_id]]
    query = select(*STORED_COLUMNS).where(in_values(delivery.c.id, without)).order_by(delivery.c.id)
    plans = []
    for stored in (StoredDelivery(*row) for row in connection.execute(query)):
        options = backfill(stored, names[stored.delivery_id])
        if options is not None:
            plans.append(RunPlan(stored.delivery_id, (handler,), options={handler: options}))
    return plans


def _make_due(
    connection: Connection,
    again: Sequence[Any],
    now: datetime,
    due_at: Callable[[int], datetime] | None = None,
) -> None:
    """Make runs due at once or, where they are ordered, waiting for their place."""
    # An ordered run waits for its place, unless it is due already: then it has its place.
    waiting = [row for row in again if row.order_key is not None and row.state != RunState.DUE.value]
    due = [row for row in again if row.order_key is None or row.state == RunState.DUE.value]
    for after, part in ((RunState.WAITING, waiting), (RunState.DUE, due)):
        for before in {RunState(row.state) for row in part} - {after}:
            check(before, after)
    is_due = run.c.state == RunState.DUE.value
    waits = and_(run.c.order_key.is_not(None), ~is_due)
    connection.execute(
        update(run)
        .where(in_values(run.c.id, [row.id for row in again]), run.c.state.in_({row.state for row in again}))
        # A new token: a late result of an earlier attempt must match nothing.
        .values(
            state=case((waits, RunState.WAITING.value), else_=RunState.DUE.value),
            attempts=0,
            runs_alone=0,
            uncounted_attempts=0,
            # Not for a run that only waits for its retry: that is the same occurrence, hastened.
            replays=run.c.replays + case((is_due, 0), else_=1),
            due_at=now,
            token=run.c.token + 1,
            finished_at=None,
            **NOT_CLAIMED,
        )
    )
    if due_at is not None and due:
        later = update(run).where(run.c.id == bindparam("run_id")).values(due_at=bindparam("moment"))
        moments = [{"run_id": row.id, "moment": due_at(n)} for n, row in enumerate(due)]
        connection.execute(later, moments)
    keys = [OrderKey(row.handler, row.order_key, row.newest_only) for row in waiting]
    finish_deliveries(connection, [each.delivery_id for each in discard_superseded(connection, keys, now)])
    release_next(connection, keys, now)


@dataclass(frozen=True, slots=True)
class DiscardResult(_Result):
    """How many deliveries and runs were discarded: done, with a reason."""

    runs: int = 0


def discard(
    inbox: Inbox, delivery_ids: Sequence[int], reason: str, now: datetime, *, dry_run: bool = False
) -> DiscardResult:
    """Discard the runs of these deliveries that have not succeeded, and deliveries without runs.

    A running run is discarded too: its handler goes on, and its result changes nothing. The next run in the
    order of a discarded one becomes due; call `inbox.waker.wake()` after the last batch.
    Deliveries that are done or pruned stay as they are.
    """
    with _transaction(inbox, delivery_ids, dry_run=dry_run) as connection:
        return _discard(connection, delivery_ids, reason, now, inbox.known_types, dry_run=dry_run)


def _discard(
    connection: Connection,
    delivery_ids: Sequence[int],
    reason: str,
    now: datetime,
    known_types: Collection[str] | None,
    *,
    dry_run: bool = False,
) -> DiscardResult:
    """Do the same in a transaction that holds the locks of counts, of these deliveries and of their order."""
    states = _states(connection, delivery_ids, *_UNHANDLED, DeliveryState.PLANNED, DeliveryState.DEAD)
    unhandled = [one for one, state in states.items() if state in _UNHANDLED]
    planned = [one for one, state in states.items() if state is DeliveryState.PLANNED]
    dead = [one for one, state in states.items() if state is DeliveryState.DEAD]
    handled = [*planned, *dead]
    runs = connection.execute(
        select(*_RUN_COLUMNS)
        .where(in_values(run.c.delivery_id, handled), in_states(run.c.state, *_OPEN))
        .order_by(run.c.id)
    ).all()
    if not dry_run:
        for state in {RunState(row.state) for row in runs}:
            check(state, RunState.DISCARDED)
        with keeping(connection, states, known_types):
            connection.execute(
                update(run)
                .where(in_values(run.c.id, [row.id for row in runs]), in_states(run.c.state, *_OPEN))
                # A new token: the result of an attempt that is running now must match nothing.
                .values(
                    state=RunState.DISCARDED.value,
                    last_error=reason,
                    finished_at=above_watermark(connection, now),
                    # Of a call that is counted already, as failed or dead.
                    duration_seconds=None,
                    token=run.c.token + 1,
                    **NOT_CLAIMED,
                )
            )
            # A delivery without runs gets the reason itself.
            _change(connection, states, unhandled, DeliveryState.DONE, **NO_REASON | {"error": reason})
            _change(connection, states, dead, DeliveryState.DONE, **NO_REASON)
            finish_deliveries(connection, planned)
        keys = [OrderKey(row.handler, row.order_key) for row in runs if row.order_key]
        release_next(connection, keys, now)
    return DiscardResult(len(states), len(runs))


# An erased delivery has lost body, headers and errors, identifying values, the digest of the body, and of its
# runs the errors, the failed attempts and the keys that are made of the body's fields. Left are what tells a
# duplicate and what was done: source, key, type, times, and each handler with its result. Without a digest
# every later delivery of the same key and type counts as a duplicate, with any bytes. It is never replayed,
# for no handler may be called with an empty body.


@dataclass(frozen=True, slots=True)
class EraseResult(_Result):
    """How many deliveries were erased, were discarded for it, or are left because they are not finished."""

    discarded: int = 0
    unfinished: int = 0


def erase(
    inbox: Inbox,
    delivery_ids: Sequence[int],
    now: datetime,
    *,
    discard_unfinished: bool = False,
    dry_run: bool = False,
) -> EraseResult:
    """Erase these deliveries, in one transaction; call `empty_log` after the last batch.

    One that is not finished is left as it is; with `discard_unfinished` it is discarded first. Deliveries
    that are pruned or erased stay as they are.
    """
    with _transaction(inbox, delivery_ids, dry_run=dry_run) as connection:
        unfinished = _states(connection, delivery_ids, *_UNFINISHED)
        discarded = list(unfinished) if discard_unfinished else []
        if discarded and not dry_run:
            _discard(connection, discarded, "erased", now, inbox.known_types)
        states = _states(connection, delivery_ids, *FINISHED)
        if not dry_run:
            with keeping(connection, states, inbox.known_types):
                own = in_values(run.c.delivery_id, states)
                # The reason why a handler is paused ends with the last error, which may quote the body.
                failed = select(failure.c.error).where(failure.c.run_id.in_(select(run.c.id).where(own)))
                forget_errors(connection, set(connection.execute(failed).scalars()))
                clear_texts(connection, list(states))
                connection.execute(delete(failure).where(failure.c.run_id.in_(select(run.c.id).where(own))))
                # The order key and the identity are made of fields of the body.
                connection.execute(
                    update(run).where(own).values(last_error=None, order_key=None, identity=None)
                )
                nothing = {"body": b"", "headers": "{}", "digest": None, **NO_REASON, **NO_IDENTIFIERS}
                _change(connection, states, states, DeliveryState.ERASED, **nothing)
        number = len(states.keys() | set(discarded))
        return EraseResult(number, len(discarded), len(unfinished) - len(discarded))


def empty_log(inbox: Inbox) -> bool:
    """Remove what was erased from the database's log, where that is a file beside it; False if it stays.

    It stays while a process reads the inbox all the time, until the next time that no process does.
    """
    end = time.monotonic() + _LOG_SECONDS
    while True:
        inbox.database.checkpoint(at_once=True)
        if not inbox.database.log_bytes():
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.02)  # a worker's poll holds the log for some milliseconds


# Not in the words of an index: these runs are found by their deliveries.
