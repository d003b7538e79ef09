"""What operators do with deliveries: replay, discard or erase them, in one transaction a batch.

With a `dry_run` each counts what it would do, and changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

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

from billhook.basics.type_names import is_reading
from billhook.inbox.counting.counts import above_watermark, keeping
from billhook.inbox.counting.retention import FINISHED
from billhook.inbox.inbox import Inbox
from billhook.inbox.operating.batches import BatchResult, change_states, states_of, transaction
from billhook.inbox.running.filters import has_failed_since
from billhook.inbox.running.leases import NOT_CLAIMED
from billhook.inbox.running.limits import forget_errors
from billhook.inbox.running.ordering import OrderKey, release_next, with_names
from billhook.inbox.running.planning import make_runs
from billhook.inbox.running.postponing import put_off_runs
from billhook.inbox.running.runs import finish_deliveries
from billhook.inbox.running.superseding import discard_superseded
from billhook.inbox.running.unread import STORED_COLUMNS
from billhook.inbox.tables.handler_names import has_name_of, stored_names
from billhook.inbox.tables.locks import lock_order
from billhook.inbox.tables.records import RunOptions, RunPlan, StoredDelivery
from billhook.inbox.tables.schema import IDENTIFIERS, NO_IDENTIFIERS, NO_REASON, delivery, failure, run
from billhook.inbox.tables.sql import in_states, in_values
from billhook.inbox.tables.states import DeliveryState, RunState, check
from billhook.inbox.watching.issues import clear_texts

_FINISHED_RUN = in_states(run.c.state, RunState.SUCCEEDED, RunState.DISCARDED, RunState.DEAD)
_UNFINISHED = (DeliveryState.RECEIVED, DeliveryState.PLANNED)
_UNHANDLED = (DeliveryState.RECEIVED, DeliveryState.QUARANTINED)
# A delivery that is still received needs no replay, and a pruned one has nothing to replay.
_HANDLED = (DeliveryState.PLANNED, DeliveryState.DONE, DeliveryState.DEAD)
_OF_THE_EVENT = ("last_error", "order_key", "newest_key", "identity")
"""The columns of a run that are made from what was delivered."""
_RUN_COLUMNS = (run.c.id, run.c.delivery_id, run.c.state, run.c.handler, run.c.order_key, run.c.newest_only)
# Not in the words of an index: these runs are found by their deliveries.
_OPEN = (RunState.WAITING, RunState.DUE, RunState.RUNNING, RunState.DEAD)
_LOG_SECONDS = 2.0
_BODIES = 50
"""Bodies that are in memory at once."""


NO_RUN_YET = "it has no run yet that a time could be given to; replay it without one"
"""Why a replay for a later time leaves a delivery as it is."""
Backfill = Callable[[StoredDelivery, Collection[str]], RunOptions | None]
"""Options of a new run, for a delivery and the names of handlers with runs of it; None for no run."""
IsMissing = Callable[[str, str], bool]
"""Whether no handler of an event type has, or had, a name."""


@dataclass(frozen=True, slots=True)
class ReplayResult(BatchResult):
    """Deliveries replayed; of them `requeued` to be planned again; runs made due again; runs `added`.

    `missing` are the runs that are left as they are because their handler is not there, by its name. Of
    deliveries whose runs another handler is to have: how many that handler `had_already`, and how many are
    `unfit`, as it does not handle their type or source, or cannot read them. `without_runs` are deliveries
    left as they are because a time was asked for, and they have no run yet that could have one.
    """

    requeued: int = 0
    runs: int = 0
    added: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    had_already: int = 0
    unfit: int = 0
    without_runs: int = 0


def replay(
    inbox: Inbox,
    delivery_ids: Sequence[int],
    now: datetime,
    *,
    handler: str | None = None,
    only_failed: bool = False,
    failed_since: datetime | None = None,
    backfill: Backfill | None = None,
    all_handlers: bool = False,
    as_type: str | None = None,
    type_field: str | None = None,
    due: Callable[[int], datetime] | None = None,
    is_missing: IsMissing | None = None,
    not_before: datetime | None = None,
    dry_run: bool = False,
) -> ReplayResult:
    """Replay these deliveries; call `inbox.waker.wake()` after the last batch.

    A quarantined delivery, and one without runs, is planned again. Of other deliveries, runs become due with
    0 attempts: dead ones, and those that wait for a retry. With `handler`, its runs in any finished state do,
    under former names too, or with `only_failed` its failed ones; with `all_handlers`, every finished run.

    A run that is running or waits in its order is left alone. An ordered run goes back to its place, or is
    discarded again where only the newest counts and a newer one is unfinished. A run whose handler
    `is_missing` stays as it is: each attempt would fail. `backfill` makes first runs.

    With `as_type`, deliveries without runs are planned again as this type. With `type_field`, those without a
    type are planned as the type in this field of their bodies, but for conflicts. Without both, a delivery
    without a type is left alone, unless it has a field to be read again.

    `due` returns when the run of an index in this batch is due, by default `now`: for a rate that holds
    without a process that waits. No run is called `not_before` a time; deliveries without runs are left as
    they are then.
    """
    # Before the transaction: what it calls may be the user's code.
    first = _first_runs(inbox, delivery_ids, handler, backfill) if handler and backfill else {}
    # New runs may be ordered: then the lock is that of any order.
    with transaction(inbox, delivery_ids, dry_run=dry_run, any_order=backfill is not None) as connection:
        replayable = (*_HANDLED, DeliveryState.QUARANTINED)
        readable = or_(delivery.c.event_type != "", delivery.c.type_field.is_not(None))
        which = None if as_type is not None else readable
        if type_field is not None:
            which = and_(delivery.c.event_type == "", delivery.c.conflict_of.is_(None))
        states = states_of(connection, delivery_ids, *replayable, which=which)
        again: Sequence[Any] = ()
        plans: list[RunPlan] = []
        missing: Counter[str] = Counter()
        if as_type is None:
            own = [in_values(run.c.delivery_id, states), _which(handler, all_handlers, only_failed)]
            own += [has_failed_since(failed_since)] if failed_since is not None else []
            again = connection.execute(select(*_RUN_COLUMNS).where(*own).order_by(run.c.id)).all()
            again, missing = _without_missing(connection, again, is_missing)
            plans = _first_plans(connection, states, handler, first) if handler and first else []
        requeued = _to_read_anew(connection, states) if handler is None or as_type is not None else []
        requeued, left = (requeued, []) if not_before is None else ([], requeued)
        touched = {row.delivery_id for row in again} | {planned.delivery_id for planned in plans}
        if not dry_run:
            finished = [number for number in touched if states[number] is not DeliveryState.PLANNED]
            sent_as = func.coalesce(delivery.c.sent_as, delivery.c.event_type)
            named: dict[str, Any] = {} if type_field is None else {"type_field": type_field}
            if as_type is not None:
                named = {"event_type": as_type, "sent_as": sent_as}
            with keeping(connection, states, inbox.known_types):
                change_states(connection, states, finished, DeliveryState.PLANNED, **NO_REASON)
                change_states(connection, states, requeued, DeliveryState.RECEIVED, **NO_REASON, **named)
                _make_due(connection, again, now, due)
            # What is discarded once more is counted once more: it is not a part of what `keeping` compares.
            _in_order(connection, again, now)
            make_runs(connection, plans, now)
            if not_before is not None:
                new = _ids_of(connection, plans)
                put_off_runs(connection, [*(row.id for row in again), *new], not_before)
    return ReplayResult(
        len(touched) + len(requeued), len(requeued), len(again), len(plans), missing, without_runs=len(left)
    )


def later_option(not_before: datetime | None) -> str:
    """Return the option of a replay for later, as the record of actions has it; empty without a time."""
    return "" if not_before is None else f" --not-before {not_before:%Y-%m-%dT%H:%M}"


def _ids_of(connection: Connection, plans: Sequence[RunPlan]) -> list[int]:
    """Return the ids of the runs that were made by these plans."""
    made = in_values(run.c.delivery_id, [planned.delivery_id for planned in plans])
    names = in_values(run.c.handler, {name for planned in plans for name in planned.handlers})
    return list(connection.execute(select(run.c.id).where(made, names)).scalars())


def _without_missing(
    connection: Connection, runs: Sequence[Any], is_missing: IsMissing | None
) -> tuple[Sequence[Any], Counter[str]]:
    """Return the runs whose handler is there, and how many others there are of each handler."""
    if is_missing is None or not runs:
        return runs, Counter()
    ids = {row.delivery_id for row in runs}
    query = select(delivery.c.id, delivery.c.event_type).where(in_values(delivery.c.id, ids))
    types: dict[int, str] = dict(map(tuple, connection.execute(query)))
    missing = {row.id for row in runs if is_missing(types[row.delivery_id], row.handler)}
    left = [row for row in runs if row.id not in missing]
    return left, Counter(row.handler for row in runs if row.id in missing)


def _which(handler: str | None, all_handlers: bool, only_failed: bool) -> ColumnElement[bool]:
    """Return which runs may be made due."""
    failed = and_(run.c.state == RunState.DUE.value, run.c.attempts > 0)
    broken = or_(run.c.state == RunState.DEAD.value, failed)
    if handler is not None:
        return and_(
            has_name_of(run.c.handler, handler), broken if only_failed else or_(_FINISHED_RUN, failed)
        )
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
        of_it = planned._replace(delivery_id=delivery_id)
        make_runs(connection, [of_it], edited.received_at)
    return delivery_id


def _to_read_anew(connection: Connection, states: Mapping[int, DeliveryState]) -> list[int]:
    """Return the deliveries without runs: quarantined, or done because they had no handler."""
    unheard = (DeliveryState.QUARANTINED, DeliveryState.DONE)
    candidates = [one for one, state in states.items() if state in unheard]
    has_run = exists().where(run.c.delivery_id == delivery.c.id)
    query = select(delivery.c.id).where(in_values(delivery.c.id, candidates), ~has_run)
    return list(connection.execute(query).scalars())


def _without_run(
    connection: Connection, states: Mapping[int, DeliveryState], handler: str
) -> dict[int, list[str]]:
    """Return the deliveries that were read and have no run of this handler, each with the handlers it has."""
    handled = [delivery_id for delivery_id, state in states.items() if state in _HANDLED]
    names: dict[int, list[str]] = {delivery_id: [] for delivery_id in handled}
    of_these = select(run.c.delivery_id, run.c.handler).where(in_values(run.c.delivery_id, handled))
    for delivery_id, name in connection.execute(of_these):
        names[delivery_id].append(name)
    its = {handler, *stored_names(connection).get(handler, ())}
    # One that is being read gets its runs when that is done.
    return {one: had for one, had in names.items() if its.isdisjoint(had) and not any(map(is_reading, had))}


def _first_runs(
    inbox: Inbox, delivery_ids: Sequence[int], handler: str, backfill: Backfill
) -> dict[int, tuple[str, RunOptions]]:
    """Return the event type and the options of new runs, for deliveries that were handled without one.

    What the caller's function reads is in memory, a few bodies at a time, and no transaction is open.
    """
    found: dict[int, tuple[str, RunOptions]] = {}
    for start in range(0, len(delivery_ids), _BODIES):
        with inbox.database.read() as connection:
            states = states_of(connection, delivery_ids[start : start + _BODIES], *_HANDLED)
            without = _without_run(connection, states, handler)
            query = select(*STORED_COLUMNS).where(in_values(delivery.c.id, without)).order_by(delivery.c.id)
            stored = [StoredDelivery(*row) for row in connection.execute(query)]
        for one in stored:
            options = backfill(one, without[one.delivery_id])
            if options is not None:
                found[one.delivery_id] = one.event_type, options
    return found


def _first_plans(
    connection: Connection,
    states: Mapping[int, DeliveryState],
    handler: str,
    first: Mapping[int, tuple[str, RunOptions]],
) -> list[RunPlan]:
    """Plan those of the new runs that are still missing, of deliveries that are of the same type."""
    without = first.keys() & _without_run(connection, states, handler).keys()
    query = select(delivery.c.id, delivery.c.event_type).where(in_values(delivery.c.id, without))
    plans = []
    for delivery_id, event_type in connection.execute(query.order_by(delivery.c.id)):
        its_type, options = first[delivery_id]
        if its_type == event_type:
            plans.append(RunPlan(delivery_id, (handler,), options={handler: options}))
    return plans


def _make_due(
    connection: Connection,
    again: Sequence[Any],
    now: datetime,
    due_at: Callable[[int], datetime] | None = None,
) -> None:
    """Make runs due at once or, where they are ordered, waiting for their place."""
    waiting = _to_wait(again)
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
            not_before=None,
            postponements=0,
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


def _to_wait(again: Sequence[Any]) -> list[Any]:
    """Return those of the runs that are ordered and not due: a run that is due has its place already."""
    return [row for row in again if row.order_key is not None and row.state != RunState.DUE.value]


def _in_order(connection: Connection, again: Sequence[Any], now: datetime) -> None:
    """Discard those of the replayed runs that are superseded, and make the first of each order due."""
    keys = [OrderKey(row.handler, row.order_key, row.newest_only) for row in _to_wait(again)]
    keys = with_names(keys, stored_names(connection)) if keys else []
    finish_deliveries(connection, [each.delivery_id for each in discard_superseded(connection, keys, now)])
    release_next(connection, keys, now)


@dataclass(frozen=True, slots=True)
class DiscardResult(BatchResult):
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
    with transaction(inbox, delivery_ids, dry_run=dry_run) as connection:
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
    """Discard them in a transaction with the locks of counts, of these deliveries and of their order."""
    states = states_of(connection, delivery_ids, *_UNHANDLED, DeliveryState.PLANNED, DeliveryState.DEAD)
    unhandled = [one for one, state in states.items() if state in _UNHANDLED]
    planned = [one for one, state in states.items() if state is DeliveryState.PLANNED]
    dead = [one for one, state in states.items() if state is DeliveryState.DEAD]
    handled = [*planned, *dead]
    runs = connection.execute(
        select(*_RUN_COLUMNS)
        .where(in_values(run.c.delivery_id, handled), in_states(run.c.state, *_OPEN))
        .order_by(run.c.id)
    ).all()
    reading = [row for row in runs if is_reading(row.handler)]
    unread = [row.delivery_id for row in reading]
    runs = [row for row in runs if not is_reading(row.handler)]
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
            connection.execute(delete(run).where(in_values(run.c.id, [row.id for row in reading])))
            without = [*unhandled, *unread]
            change_states(connection, states, without, DeliveryState.DONE, **NO_REASON | {"error": reason})
            change_states(connection, states, dead, DeliveryState.DONE, **NO_REASON)
            finish_deliveries(connection, planned)
        keys = [OrderKey(row.handler, row.order_key) for row in (*runs, *reading) if row.order_key]
        release_next(connection, with_names(keys, stored_names(connection)) if keys else [], now)
    return DiscardResult(len(states), len(runs))


# An erased delivery has lost body, headers and errors, identifying values, the digest of the body, and of its
# runs the errors, the failed attempts and the keys that are made of the body's fields. Left are what tells a
# duplicate and what was done: source, key, type, times, and each handler with its result. Without a digest
# every later delivery of the same key and type counts as a duplicate, with any bytes. It is never replayed,
# for no handler may be called with an empty body.


@dataclass(frozen=True, slots=True)
class EraseResult(BatchResult):
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
    with transaction(inbox, delivery_ids, dry_run=dry_run) as connection:
        unfinished = states_of(connection, delivery_ids, *_UNFINISHED)
        discarded = list(unfinished) if discard_unfinished else []
        if discarded and not dry_run:
            _discard(connection, discarded, "erased", now, inbox.known_types)
        states = states_of(connection, delivery_ids, *FINISHED)
        if not dry_run:
            with keeping(connection, states, inbox.known_types):
                own = in_values(run.c.delivery_id, states)
                # The reason why a handler is paused ends with the last error, which may quote the body.
                failed = select(failure.c.error).where(failure.c.run_id.in_(select(run.c.id).where(own)))
                forget_errors(connection, set(connection.execute(failed).scalars()))
                clear_texts(connection, list(states))
                connection.execute(delete(failure).where(failure.c.run_id.in_(select(run.c.id).where(own))))
                connection.execute(update(run).where(own).values(dict.fromkeys(_OF_THE_EVENT)))
                nothing = {"body": b"", "headers": "{}", "digest": None, **NO_REASON, **NO_IDENTIFIERS}
                change_states(connection, states, states, DeliveryState.ERASED, **nothing)
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
