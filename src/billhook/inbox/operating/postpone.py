"""Put runs off: they are not called before a time that an operator names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select

from billhook.basics.type_names import is_reading
from billhook.inbox.inbox import Inbox
from billhook.inbox.operating.batches import BatchResult, transaction
from billhook.inbox.running.postponing import put_off_runs
from billhook.inbox.tables.handler_names import has_name_of
from billhook.inbox.tables.schema import ORDERED_RUN, run
from billhook.inbox.tables.sql import in_states, in_values, of_alias
from billhook.inbox.tables.states import RunState

# Not in the words of an index: these runs are found by their deliveries.
_UNFINISHED = (RunState.WAITING, RunState.DUE, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class PostponeResult(BatchResult):
    """How many deliveries and runs were put off, how many runs are left as they are `running`.

    `behind` is how many deliveries wait for these in the order of a handler.
    """

    runs: int = 0
    running: int = 0
    behind: int = 0


def postpone(
    inbox: Inbox,
    delivery_ids: Sequence[int],
    now: datetime,
    until: datetime,
    *,
    handler: str | None = None,
    dry_run: bool = False,
) -> PostponeResult:
    """Postpone the runs of these deliveries to a time, or only those of one handler if it is named.

    This changes runs that are due, retried later, or wait in their order. If the time has passed they are
    due at once, in their order; call `inbox.waker.wake()` after the last batch. What runs now, is finished,
    or is not read yet stays as it is, and so does a retry that is later.
    """
    with transaction(inbox, delivery_ids, dry_run=dry_run) as connection:
        which = [in_values(run.c.delivery_id, delivery_ids), in_states(run.c.state, *_UNFINISHED)]
        if handler is not None:
            which.append(has_name_of(run.c.handler, handler))
        columns = (run.c.id, run.c.delivery_id, run.c.state, run.c.handler, run.c.order_key)
        rows = connection.execute(select(*columns).where(*which).order_by(run.c.id)).all()
        rows = [row for row in rows if not is_reading(row.handler)]
        chosen = [row for row in rows if row.state != RunState.RUNNING]
        ids = [row.id for row in chosen]
        if chosen and not dry_run:
            at_once: dict[str, Any] = {"not_before": None} if until <= now else {}
            put_off_runs(connection, ids, max(until, now), **at_once)
        ordered = [row.id for row in chosen if row.order_key is not None]
        behind = _count_behind(connection, ordered, ids) if ordered else 0
    return PostponeResult(
        len({row.delivery_id for row in chosen}), len(chosen), len(rows) - len(chosen), behind
    )


def _count_behind(connection: Connection, ordered: Sequence[int], chosen: Sequence[int]) -> int:
    """Count the deliveries with runs that wait in an order behind one of these, and are not among them."""
    other = run.alias("other")
    waits = (
        other.c.handler == run.c.handler,
        other.c.order_key == run.c.order_key,
        of_alias(ORDERED_RUN, other),
        other.c.state == RunState.WAITING.value,
        other.c.delivery_id > run.c.delivery_id,
        ~in_values(other.c.id, chosen),
    )
    number = func.count(func.distinct(other.c.delivery_id))
    query = select(number).select_from(run).join(other, waits[0] & waits[1]).where(*waits[2:])
    found: int = connection.execute(query.where(in_values(run.c.id, ordered))).scalar_one()
    return found
