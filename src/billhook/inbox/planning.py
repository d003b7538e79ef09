"""Plan deliveries: insert the runs of their handlers, or quarantine them.

A content duplicate is a delivery sent again under another key, by a sender whose retries have new ids. For a
handler with an identity, its run is stored as discarded.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, FromClause, Text, Update, select, update
from sqlalchemy.types import TypeEngine

from billhook.inbox.counts import open_time
from billhook.inbox.limits import PAUSED_COUNT
from billhook.inbox.records import (
    ContentKey,
    DuplicateRun,
    RunOptions,
    RunPlan,
    StoredDelivery,
)
from billhook.inbox.runs import finish_deliveries, insert_runs, new_run, release_next
from billhook.inbox.schema import IDENTIFIERS, delivery, run
from billhook.inbox.sql import in_states, in_values, json_rows, json_rows_on_sqlite
from billhook.inbox.states import DeliveryState, RunState

_PLAIN = RunOptions()
_IDENTIFIERS = tuple(column.name for column in IDENTIFIERS)
_PLANNED: dict[str, TypeEngine[Any]] = {
    "delivery_id": BigInteger(),
    "new_state": Text(),
    "reason": Text(),
    **dict.fromkeys(_IDENTIFIERS, Text()),
}


def _plan_statement(planned: FromClause) -> Update:
    """Build the update for rows with the columns of _PLANNED."""
    return (
        update(delivery)
        # The state decides between two workers that read the same delivery: one of them plans it.
        .where(delivery.c.id == planned.c.delivery_id, in_states(delivery.c.state, DeliveryState.RECEIVED))
        .values(
            state=planned.c.new_state,
            error=planned.c.reason,
            **{name: planned.c[name] for name in _IDENTIFIERS},
        )
        .returning(delivery.c.id, delivery.c.key, PAUSED_COUNT)
    )


_PLAN = {
    "postgresql": _plan_statement(json_rows("plans", _PLANNED)),
    "sqlite": _plan_statement(json_rows_on_sqlite("plans", _PLANNED)),
}


class PlanningResult(NamedTuple):
    """What `plan` stored, and what it left to the claim that follows."""

    planned_here: list[int]
    """The deliveries that no other worker planned meanwhile."""
    duplicates: list[DuplicateRun]
    released: list[int]
    """The deliveries of which a run became due because a run of these replaces it."""
    left_to_claim: list[tuple[StoredDelivery, str]]
    """Deliveries and handlers whose runs are not stored: the claim inserts them, in one write, not two."""


def plan(connection: Connection, plans: Sequence[RunPlan], now: datetime) -> PlanningResult:
    """Insert the runs of received deliveries, oldest first; under billhook.inbox.locks.

    Those of plans that are `claimable` are left to the caller, unless a handler is paused.
    """
    rows = []
    for planned in plans:
        state = DeliveryState.PLANNED if planned.handlers else DeliveryState.DONE
        if planned.error is not None:
            state = DeliveryState.QUARANTINED
        row = {"delivery_id": planned.delivery_id, "new_state": state.value, "reason": planned.error}
        rows.append(row | dict(zip(_IDENTIFIERS, planned.identifiers, strict=False)))
    keys: dict[int, str | None] = {}  # of those that no other worker has planned; None with a paused handler
    for delivery_id, key, paused in connection.execute(
        _PLAN[connection.dialect.name], {"plans": json.dumps(rows)}
    ):
        keys[delivery_id] = None if paused else key
    making: list[RunPlan] = []
    left_to_claim: list[tuple[StoredDelivery, str]] = []
    mine = [planned for planned in plans if planned.delivery_id in keys]
    for planned in mine:
        stored = planned.claimable
        # Another key: the file was replaced since the delivery was read.
        if stored is not None and stored.key == keys[stored.delivery_id]:
            left_to_claim += [(stored, handler) for handler in planned.handlers]
        else:
            making.append(planned)
    duplicates, released = make_runs(connection, making, now) if making else ([], [])
    planned_here = [planned.delivery_id for planned in mine]
    return PlanningResult(planned_here, duplicates, sorted(set(released) - keys.keys()), left_to_claim)


def make_runs(
    connection: Connection, plans: Sequence[RunPlan], now: datetime
) -> tuple[list[DuplicateRun], list[int]]:
    """Insert the runs of planned deliveries: due, waiting in their order, or discarded as content duplicates.

    Returns the duplicates, and the deliveries of which an ordered run became due. A delivery without runs
    beside duplicates is done.
    """
    originals = find_duplicates(connection, plans) if any(planned.options for planned in plans) else {}
    finished_at = open_time(connection, now) if originals else now
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
                keys.append((handler, options.order_key))
    insert_runs(connection, rows)
    finish_deliveries(connection, {delivery_id for delivery_id, _ in originals})
    released = release_next(connection, keys, now)
    duplicates = [
        DuplicateRun(delivery_id, handler, original) for (delivery_id, handler), original in originals.items()
    ]
    return duplicates, released


def _options_columns(options: RunOptions, original: int | None, finished_at: datetime) -> dict[str, Any]:
    """Return the columns of a run with options: ordered, or a possible content duplicate."""
    if options is _PLAIN:
        return {}
    state = RunState.DUE if options.order_key is None else RunState.WAITING
    error = None
    if original is not None and options.content_key is not None:
        state = RunState.DISCARDED
        error = f"twin of delivery {original}: same {', '.join(options.content_key.fields)}"
    return {
        "state": state,
        "order_key": options.order_key,
        "identity": options.content_key.digest if options.content_key else None,
        "twin_of": original,
        "last_error": error,
        "finished_at": None if original is None else finished_at,
    }


# --- content duplicates -------------------------------------------------------------------------------


def find_duplicates(connection: Connection, plans: Sequence[RunPlan]) -> dict[tuple[int, str], int]:
    """Find the planned runs whose handler has had the same content, with the id of that first delivery.

    Keys of the result are delivery ids and handlers' names. The first delivery is the earliest planned for
    the handler with an equal content key that is no duplicate itself, received within the key's window before
    this one (or after it: an unreadable delivery may be read late). Of two that are planned together the
    second is the duplicate. On PostgreSQL only under billhook.inbox.locks.
    """
    wanted = [
        (planned.delivery_id, handler, options.content_key)
        for planned in plans
        for handler, options in planned.options.items()
        if options.content_key is not None
    ]
    if not wanted:
        return {}
    originals = _possible_originals(
        connection, [(handler, content_key) for _, handler, content_key in wanted]
    )
    duplicates: dict[tuple[int, str], int] = {}
    for delivery_id, handler, content_key in wanted:
        earlier = originals[handler, content_key.digest]
        window = timedelta(seconds=content_key.window_seconds)
        for original, received_at in earlier:
            if abs(content_key.received_at - received_at) <= window:
                duplicates[delivery_id, handler] = original
                break
        else:
            earlier.append((delivery_id, content_key.received_at))
    return duplicates


def _possible_originals(
    connection: Connection, wanted: Sequence[tuple[str, ContentKey]]
) -> defaultdict[tuple[str, str], list[tuple[int, datetime]]]:
    """Return runs that may be the first, by handler and digest: delivery ids and times of receipt."""
    since = min(each.received_at - timedelta(seconds=each.window_seconds) for _, each in wanted)
    query = (
        select(run.c.handler, run.c.identity, run.c.delivery_id, delivery.c.received_at)
        .join(delivery, delivery.c.id == run.c.delivery_id)
        .where(
            in_values(run.c.handler, sorted({handler for handler, _ in wanted})),
            in_values(run.c.identity, sorted({each.digest for _, each in wanted})),
            run.c.identity.is_not(None),  # with the next line, so that the partial index applies
            run.c.twin_of.is_(None),
            delivery.c.received_at >= since,
        )
        .order_by(run.c.id)
    )
    originals: defaultdict[tuple[str, str], list[tuple[int, datetime]]] = defaultdict(list)
    for handler, digest, delivery_id, received_at in connection.execute(query):
        originals[handler, digest].append((delivery_id, received_at))
    return originals
