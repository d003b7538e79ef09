"""Write the plans of deliveries, and their runs: due, waiting in their order, or content duplicates."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Text, Update, case, func, update
from sqlalchemy.types import TypeEngine

from billhook.inbox.counting.counts import above_watermark
from billhook.inbox.running.content_duplicates import find_duplicates
from billhook.inbox.running.leases import NOT_CLAIMED
from billhook.inbox.running.limits import PAUSED_COUNT
from billhook.inbox.running.ordering import OrderKey, release_next, with_names
from billhook.inbox.running.runs import NEW_RUN, finish_deliveries, insert_runs, new_run
from billhook.inbox.running.superseding import NEWEST_BY_KEY, discard_superseded
from billhook.inbox.tables.dialect import InboxDialect, dialect_of, json_text
from billhook.inbox.tables.handler_names import ONE_NAME, stored_names
from billhook.inbox.tables.records import RunOptions, RunPlan, UncalledRun
from billhook.inbox.tables.schema import IDENTIFIERS, UNFINISHED_RUN, UNREAD, delivery, run
from billhook.inbox.tables.sql import in_states
from billhook.inbox.tables.states import DeliveryState, RunState

_PLAIN = RunOptions()


# Plain texts: SQLAlchemy's names are of a type of its own, of which pydantic's writer needs 6 µs for each.
_IDENTIFIERS = tuple(str(column.name) for column in IDENTIFIERS)
_BEING_READ = in_states(delivery.c.state, DeliveryState.PLANNED)
_PLANNED: dict[str, TypeEngine[Any]] = {
    "delivery_id": BigInteger(),
    "new_state": Text(),
    "reason": Text(),
    "event_type": Text(),
    **dict.fromkeys(_IDENTIFIERS, Text()),
}


@cache
def _plan_statement(own: InboxDialect, *, reads_types: bool, was_planned: bool) -> Update:
    """Build the update for rows with the columns of _PLANNED; `reads_types` if types were read in bodies.

    Without that no type is written: SQLite would write the entry of its index anew, with the same type.
    """
    planned = own.rows("plans", _PLANNED)
    read: dict[str, Any] = {}
    if reads_types:
        read = {"event_type": func.coalesce(planned.c.event_type, delivery.c.event_type)}
    return (
        update(delivery)
        # The state decides between two workers that read the same delivery: one of them plans it.
        .where(delivery.c.id == planned.c.delivery_id, _BEING_READ if was_planned else UNREAD)
        .values(
            state=planned.c.new_state,
            error=planned.c.reason,
            **read,
            **{name: planned.c[name] for name in _IDENTIFIERS},
        )
        .returning(delivery.c.id, delivery.c.key, PAUSED_COUNT)
    )


def write_plans(
    connection: Connection, plans: Sequence[RunPlan], *, was_planned: bool
) -> dict[int, str | None]:
    """Write the states of deliveries by their plans: unread ones, or if it `was_planned` those being read.

    Returns the keys of deliveries that no other worker has planned, by their ids; None while any handler is
    paused.
    """
    rows, reads_types = [], False
    for planned in plans:
        state = DeliveryState.PLANNED if planned.handlers else DeliveryState.DONE
        if planned.error is not None:
            state = DeliveryState.QUARANTINED
        row = {"delivery_id": planned.delivery_id, "new_state": state.value, "reason": planned.error}
        if planned.event_type is not None:
            reads_types, row["event_type"] = True, planned.event_type
        rows.append(row | dict(zip(_IDENTIFIERS, planned.identifiers, strict=False)))
    statement = _plan_statement(dialect_of(connection), reads_types=reads_types, was_planned=was_planned)
    new = connection.execute(statement, {"plans": json_text(rows)})
    return {delivery_id: None if paused else key for delivery_id, key, paused in new}


def make_runs(
    connection: Connection, plans: Sequence[RunPlan], now: datetime
) -> tuple[list[UncalledRun], list[int], list[UncalledRun]]:
    """Insert the runs of planned deliveries: due, waiting in their order, or discarded as content duplicates.

    Returns the duplicates, the deliveries of which an ordered run became due, and the runs that are
    superseded. A delivery without runs beside duplicates is done.
    """
    rows, keys, originals = _rows(connection, plans, now)
    insert_runs(connection, rows)
    return _in_order(connection, keys, originals, now)


def change_runs(
    connection: Connection,
    plans: Sequence[RunPlan],
    runs: Mapping[int, int],
    now: datetime,
) -> None:
    """Change a run of each delivery, whose id `runs` has, into the one that is planned: see `make_runs`.

    It keeps its failures. One that was finished is a new occurrence, as after a replay.
    """
    rows, keys, originals = _rows(connection, plans, now)
    for row in rows:
        run_id = runs[row.pop("delivery_id")]
        # A new token: a late result of an earlier attempt must match nothing.
        row |= {"token": run.c.token + 1, "replays": run.c.replays + case((UNFINISHED_RUN, 0), else_=1)}
        row |= {"runs_alone": 0, "uncounted_attempts": 0, "duration_seconds": None, **NOT_CLAIMED}
        row |= {"not_before": None, "postponements": 0}
        connection.execute(update(run).where(run.c.id == run_id).values({**NEW_RUN, **row}))
    _in_order(connection, keys, originals, now)


def _rows(
    connection: Connection, plans: Sequence[RunPlan], now: datetime
) -> tuple[list[dict[str, Any]], list[OrderKey], dict[tuple[int, str], int]]:
    """Return the rows of planned runs, their order keys, and the originals of the content duplicates."""
    names, originals = ONE_NAME, {}
    if any(planned.options for planned in plans):
        # Of all processes: one of older code must see what was handled under a newer name.
        names = stored_names(connection)
        originals = find_duplicates(connection, plans, names)
    finished_at = above_watermark(connection, now) if originals else now
    rows = []
    keys = []
    # Random, not 0: a result from before the file was replaced must match no run of the new file.
    token = secrets.randbits(30)
    for planned in plans:
        for handler in planned.handlers:
            options = planned.options.get(handler, _PLAIN)
            columns = _options_columns(options, originals.get((planned.delivery_id, handler)), finished_at)
            rows.append(new_run(planned.delivery_id, handler, now, token, **columns))
            if options.order_key is not None:
                keys.append(OrderKey(handler, options.order_key, _newest_only(options)))
    return rows, with_names(keys, names), originals


def _in_order(
    connection: Connection,
    keys: Sequence[OrderKey],
    originals: Mapping[tuple[int, str], int],
    now: datetime,
) -> tuple[list[UncalledRun], list[int], list[UncalledRun]]:
    """Discard what is superseded, finish deliveries without other runs, make the first of each key due."""
    superseded = discard_superseded(connection, keys, now)
    finished = {delivery_id for delivery_id, _ in originals} | {each.delivery_id for each in superseded}
    finish_deliveries(connection, finished)
    released = release_next(connection, keys, now)
    duplicates = [
        UncalledRun(delivery_id, handler, original) for (delivery_id, handler), original in originals.items()
    ]
    return duplicates, released, superseded


def _newest_only(options: RunOptions) -> int:
    if options.newest_only and options.newest_key is not None:
        return NEWEST_BY_KEY
    return int(options.newest_only)


def _options_columns(options: RunOptions, original: int | None, finished_at: datetime) -> dict[str, Any]:
    """Return the columns of a run with options: ordered, or a possible content duplicate."""
    if options is _PLAIN:
        return {}
    state = RunState.DUE if options.order_key is None else RunState.WAITING
    error = None
    if original is not None and options.content_key is not None:
        state = RunState.DISCARDED
        error = f"content duplicate of delivery {original}: same {', '.join(options.content_key.fields)}"
    return {
        "state": state,
        "order_key": options.order_key,
        "newest_only": _newest_only(options),
        "newest_key": options.newest_key,
        "identity": options.content_key.digest if options.content_key else None,
        "twin_of": original,
        "last_error": error,
        "finished_at": None if original is None else finished_at,
    }
