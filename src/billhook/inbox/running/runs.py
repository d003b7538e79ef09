"""The rows of runs: insert them, and settle their results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Float,
    Integer,
    Text,
    Update,
    case,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.types import TypeEngine

from billhook.basics.type_names import is_reading
from billhook.inbox.counting.counts import as_above_watermark
from billhook.inbox.running.leases import LOST, NOT_CLAIMED, UNSETTLED
from billhook.inbox.running.ordering import OrderKey, release_next, with_names
from billhook.inbox.running.postponing import not_earlier
from billhook.inbox.running.superseding import discard_superseded
from billhook.inbox.tables.dialect import RunUpdate, dialect_of
from billhook.inbox.tables.handler_names import ONE_NAME, StoredNames, stored_names
from billhook.inbox.tables.records import RunResult, UncalledRun, fingerprint
from billhook.inbox.tables.schema import UNFINISHED_RUN, delivery, failure, run
from billhook.inbox.tables.sql import UtcDateTime, in_parameter
from billhook.inbox.tables.states import DeliveryState, RunState

RECENT = timedelta(seconds=1)
"""A result that is written later than this after its handler ended is stored with the time of writing.

Rows that finished longer ago than that are in the hourly counts already: see billhook.inbox.counting.counts.
"""
_OWN_RUN = run.c.delivery_id == delivery.c.id
_FINISH = (
    update(delivery)
    .where(
        in_parameter(delivery.c.id, "delivery_ids"),
        # Planned only: a delivery that another transaction finished, or an operator discarded, stays so.
        delivery.c.state == DeliveryState.PLANNED.value,
        ~exists().where(_OWN_RUN, UNFINISHED_RUN),
    )
    .values(
        state=case(
            (exists().where(_OWN_RUN, run.c.state == RunState.DEAD.value), DeliveryState.DEAD.value),
            else_=DeliveryState.DONE.value,
        )
    )
)


def new_run(
    delivery_id: int,
    handler: str,
    due_at: datetime,
    token: int,
    *,
    state: RunState = RunState.DUE,
    **others: Any,
) -> dict[str, Any]:
    """Return the row of a new run; `others` are columns that are as in NEW_RUN otherwise."""
    row = {"delivery_id": delivery_id, "handler": handler, "state": state.value, "due_at": due_at}
    return {**row, "token": token, **others}


NEW_RUN: dict[str, Any] = {
    "attempts": 0,
    "worker": None,
    "release_id": None,
    "queued": 0,
    "started_at": None,
    "finished_at": None,
    "last_error": None,
    "order_key": None,
    "newest_only": 0,
    "newest_key": None,
    "identity": None,
    "twin_of": None,
}
_COLUMNS = ("delivery_id", "handler", "state", "due_at", "token", *NEW_RUN)


def insert_runs(
    connection: Connection,
    rows: Sequence[Mapping[str, Any]],
    shared: Mapping[str, Any] = MappingProxyType({}),
) -> dict[tuple[int, str], int]:
    """Insert new runs; returns their ids by delivery and handler.

    A column that a row lacks is taken from `shared`, which is sent once, and else from NEW_RUN.
    """
    if not rows:
        return {}
    return dialect_of(connection).insert_runs(connection, _COLUMNS, rows, {**NEW_RUN, **shared})


def settle(
    connection: Connection,
    results: Sequence[RunResult],
    claimer: Mapping[str, Any],
    clock: Callable[[], datetime] | None = None,
    names: StoredNames = ONE_NAME,
) -> tuple[list[tuple[RunResult, str]], list[int], list[UncalledRun]]:
    """Write the results of runs; under billhook.inbox.tables.locks.

    Returns the results that were written, with the handlers of their runs, the deliveries of which a run
    became due because the one before it in its order finished, and the runs that were superseded. A result
    with an old fencing token changes nothing: another worker holds the lease. `clock` is read once the locks
    are held; without it each result is stored with the time when its handler ended, however long ago that
    was. `claimer` are the columns that say who made the attempts; failures are grouped by `names`, those
    of the caller's handlers.
    """
    now = clock() if clock else None
    given: dict[tuple[int, int], RunResult] = {result.lease: result for result in results}
    settled: list[tuple[RunResult, str]] = []
    keys: list[OrderKey] = []
    for run_id, token, handler, *its_order in _write_results(connection, results, now):
        result = given[run_id, token]
        settled.append((result, handler))
        # A run that is due again keeps its place, so the next one in its order goes on waiting; where only
        # the newest counts, it may be superseded.
        key = OrderKey(handler, *its_order)
        if key.value is not None and (result.state is not RunState.DUE or key.newest_only):
            keys.append(key)
    failures = [
        {
            "run_id": result.lease.run_id,
            "attempt": result.attempt,
            "failed_at": _stored_at(result, now),
            "error": result.error,
            "traceback": result.traceback,
            "duration_seconds": result.duration_seconds,
            # Of a reading it is not counted: the row is deleted with the run, and no figure may fall.
            "retried": int(result.state is RunState.DUE and not (result.uncounted or is_reading(handler))),
            "fingerprint": _issue(names, handler, result.group),
            "place": result.place,
            **claimer,
        }
        for result, handler in settled
        if result.state in (RunState.DUE, RunState.DEAD)
    ]
    if failures:
        connection.execute(insert(failure), failures)
    finished = {result.delivery_id for result, _ in settled if result.state is not RunState.DUE}
    if not keys:
        finish_deliveries(connection, finished)
        return settled, [], []
    keys = with_names(keys, stored_names(connection))
    at = max(result.at for result in results)
    superseded = discard_superseded(connection, keys, at)
    finish_deliveries(connection, finished | {each.delivery_id for each in superseded})
    return settled, release_next(connection, keys, at), superseded


def _issue(names: StoredNames, stored_under: str, group: str | None) -> str | None:
    """Return the fingerprint of a failure: those of one bug are one issue under all names of a handler.

    What killed its worker is of the issue of the attempts that were lost, which has the stored name.
    """
    if group is None:
        return None
    return fingerprint(stored_under if group == LOST else names.get(stored_under, (stored_under,))[0], group)


_RESULT: dict[str, TypeEngine[Any]] = {
    "run_id": BigInteger(),
    "fencing_token": Integer(),
    "attempt": Integer(),
    "new_state": Text(),
    "error": Text(),
    "retry_at": UtcDateTime(),
    "postponed_to": UtcDateTime(),
    "ended_at": UtcDateTime(),
    "is_uncounted": Integer(),
    "called_at": UtcDateTime(),
    "seconds": Float(),
}
_ITS_COLUMNS = (run.c.id, run.c.token, run.c.handler, run.c.order_key, run.c.newest_only)
_RUNNING = select(*_ITS_COLUMNS).where(in_parameter(run.c.id, "run_ids"), UNSETTLED)


def _settle_statement(given: Mapping[str, ColumnElement[Any]]) -> Update:
    """Build the update for results: `given` are the values of _RESULT."""
    uncounted = run.c.uncounted_attempts + given["is_uncounted"]
    return (
        update(run)
        .where(
            run.c.id == given["run_id"],
            # The fencing: compared in the statement that writes, so that no claim comes between.
            run.c.token == given["fencing_token"],
            UNSETTLED,
        )
        .values(
            state=given["new_state"],
            last_error=given["error"],
            runs_alone=literal_column(
                "0"
            ),  # however it ended, it did not kill its worker: it is no suspect any more
            # An operator may have put the run off since its lease had ended: the later time counts.
            due_at=not_earlier(func.coalesce(given["retry_at"], run.c.due_at)),
            not_before=func.coalesce(not_earlier(given["postponed_to"]), run.c.not_before),
            postponements=run.c.postponements
            + case((given["postponed_to"].is_(None), literal_column("0")), else_=literal_column("1")),
            finished_at=as_above_watermark(given["ended_at"]),
            attempts=given["attempt"],
            # No more than there were: another worker may have taken it for lost, and it ends here after all.
            uncounted_attempts=case((uncounted > given["attempt"], given["attempt"]), else_=uncounted),
            started_at=func.coalesce(given["called_at"], run.c.started_at),
            duration_seconds=given["seconds"],
            **{name: literal_column(str(value)) for name, value in NOT_CLAIMED.items()},
        )
    )


_SETTLE = RunUpdate(_RESULT, _settle_statement, _RUNNING)


def _stored_at(result: RunResult, now: datetime | None) -> datetime:
    """Return the time that the result is stored with: see RECENT."""
    return result.at if now is None or now - result.at < RECENT else now


def _write_results(
    connection: Connection, results: Sequence[RunResult], now: datetime | None
) -> Sequence[Sequence[Any]]:
    """Write the results whose lease still holds; returns the rows of their runs."""
    given = []
    for result in results:
        retried, seconds = result.state is RunState.DUE, result.duration_seconds
        given.append(
            {
                "run_id": result.lease.run_id,
                "fencing_token": result.lease.token,
                "attempt": result.attempt,
                "new_state": result.state.value,
                "error": result.error,
                "retry_at": result.due_at if retried else None,
                "postponed_to": result.not_before if retried else None,
                "ended_at": None if retried else _stored_at(result, now),
                "is_uncounted": int(result.uncounted),
                "called_at": None if seconds is None else result.at - timedelta(seconds=seconds),
                "seconds": seconds,
            }
        )
    return dialect_of(connection).update_runs(connection, _SETTLE, given)


def finish_deliveries(connection: Connection, delivery_ids: Collection[int]) -> None:
    """Finish planned deliveries without an unfinished run: done, or dead if any run is dead."""
    if delivery_ids:
        connection.execute(_FINISH, {"delivery_ids": list(delivery_ids)})
