"""Plan the runs of deliveries: due, waiting in their order, or discarded as content duplicates."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from billhook.inbox.content_duplicates import find_duplicates
from billhook.inbox.counts import above_watermark
from billhook.inbox.ordering import OrderKey, discard_superseded, release_next
from billhook.inbox.records import RunOptions, RunPlan, UncalledRun
from billhook.inbox.runs import finish_deliveries, insert_runs, new_run
from billhook.inbox.states import RunState

_PLAIN = RunOptions()


def make_runs(
    connection: Connection, plans: Sequence[RunPlan], now: datetime
) -> tuple[list[UncalledRun], list[int], list[UncalledRun]]:
    """Insert the runs of planned deliveries: due, waiting in their order, or discarded as content duplicates.

    Returns the duplicates, the deliveries of which an ordered run became due, and the runs that are
    superseded. A delivery without runs beside duplicates is done.
    """
    originals = find_duplicates(connection, plans) if any(planned.options for planned in plans) else {}
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
                keys.append(OrderKey(handler, options.order_key, options.newest_only))
    insert_runs(connection, rows)
    superseded = discard_superseded(connection, keys, now)
    finished = {delivery_id for delivery_id, _ in originals} | {each.delivery_id for each in superseded}
    finish_deliveries(connection, finished)
    released = release_next(connection, keys, now)
    duplicates = [
        UncalledRun(delivery_id, handler, original) for (delivery_id, handler), original in originals.items()
    ]
    return duplicates, released, superseded


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
        "newest_only": int(options.newest_only),
        "identity": options.content_key.digest if options.content_key else None,
        "twin_of": original,
        "last_error": error,
        "finished_at": None if original is None else finished_at,
    }
