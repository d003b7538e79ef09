"""Have another handler take over the runs of one that is not there any more: `replay --handler OLD --to NEW`.

Each run keeps its failures, and becomes what a first run of the other handler would be: due, waiting in its
order, or discarded as a content duplicate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, or_, select, update

from billhook.basics.printable import counted
from billhook.inbox.counting.counts import keeping
from billhook.inbox.inbox import Inbox
from billhook.inbox.operating.operations import Backfill, ReplayResult
from billhook.inbox.running.ordering import OrderKey, release_next, with_names
from billhook.inbox.running.planning import change_runs
from billhook.inbox.running.postponing import put_off_runs
from billhook.inbox.running.unread import STORED_COLUMNS
from billhook.inbox.tables.handler_names import stored_names
from billhook.inbox.tables.locks import lock_counts, lock_deliveries, lock_order
from billhook.inbox.tables.records import RunOptions, RunPlan, StoredDelivery
from billhook.inbox.tables.schema import NO_REASON, delivery, failure, run
from billhook.inbox.tables.sql import in_states, in_values
from billhook.inbox.tables.states import DeliveryState, RunState, check

_HANDLED = in_states(delivery.c.state, DeliveryState.PLANNED, DeliveryState.DONE, DeliveryState.DEAD)
_BROKEN = or_(run.c.state == RunState.DEAD.value, and_(run.c.state == RunState.DUE.value, run.c.attempts > 0))


def take_over(
    inbox: Inbox,
    delivery_ids: Sequence[int],
    now: datetime,
    *,
    handler: str,
    to: str,
    to_names: Collection[str],
    options: Backfill,
    only_failed: bool = False,
    not_before: datetime | None = None,
    dry_run: bool = False,
) -> ReplayResult:
    """Rename the runs that these deliveries have of `handler`, and make them due; wake workers afterwards.

    Running runs are left alone; `only_failed` leaves all but failed ones. Runs under the former names of
    `handler` are renamed too, unless `handler` is a former name of `to`: then only runs under this very name.
    A delivery that has a run of `to`, under any of `to_names`, keeps both as they are. `options` are those of
    a first run of `to`. None is called `not_before` a time.
    """
    with inbox.database.read() as connection:
        names = stored_names(connection)
        its_names = names.get(handler, (handler,))
        # A former name of `to` itself: only what is stored under that.
        its_names = (handler,) if to in its_names else its_names
        others = [name for name in {*to_names, *names.get(to, ())} if name not in its_names]
        is_broken = _BROKEN if only_failed else run.c.state != RunState.RUNNING.value
        which = (in_values(run.c.handler, its_names), is_broken)
        found = _runs(connection, delivery_ids, which)
        have = _having(connection, [row.delivery_id for row in found], others)
        ids = [row.delivery_id for row in found if row.delivery_id not in have]
        query = select(*STORED_COLUMNS).where(in_values(delivery.c.id, ids)).order_by(delivery.c.id)
        stored = [StoredDelivery(*row) for row in connection.execute(query)]
    # Outside of a transaction that holds locks: it calls the user's models.
    made = {one.delivery_id: options(one, ()) for one in stored}
    fit = {delivery_id: its for delivery_id, its in made.items() if its is not None}
    unfit = len(made) - len(fit)
    if dry_run:
        return ReplayResult(len(fit), runs=len(fit), had_already=len(have), unfit=unfit)
    with inbox.database.write() as connection:
        lock_counts(connection)
        lock_order(connection)
        lock_deliveries(connection, delivery_ids)
        # Once more: a worker may have claimed a run meanwhile, or another operator replayed it.
        have = _having(connection, [row.delivery_id for row in found], others)
        rows = [row for row in _runs(connection, [*fit], which) if row.delivery_id not in have]
        # One of a delivery, though runs under two of the names may have been made.
        rows = [*{row.delivery_id: row for row in rows}.values()]
        with keeping(connection, [row.delivery_id for row in rows], inbox.known_types):
            _rename(connection, rows, to, fit, now)
        keys = [OrderKey(row.handler, row.order_key) for row in rows if row.order_key]
        release_next(connection, with_names(keys, names), now)
        if not_before is not None:
            put_off_runs(connection, [row.id for row in rows], not_before)
    return ReplayResult(len(rows), runs=len(rows), had_already=len(have), unfit=unfit)


def passed_over(done: ReplayResult, to: str) -> list[str]:
    """Return sentences about the deliveries that the handler `to` did not take over."""
    numbers = {
        f"{to} has a run of it already": done.had_already,
        f"{to} does not handle its type and source, or cannot read it": done.unfit,
    }
    return [f"{counted(number, 'delivery')} passed over: {why}" for why, number in numbers.items() if number]


def _runs(
    connection: Connection, delivery_ids: Sequence[int], which: Sequence[ColumnElement[bool]]
) -> Sequence[Any]:
    columns = (
        run.c.id,
        run.c.delivery_id,
        run.c.state,
        run.c.handler,
        run.c.order_key,
        delivery.c.state.label("of"),
    )
    query = select(*columns).join(delivery, delivery.c.id == run.c.delivery_id)
    own = (in_values(run.c.delivery_id, delivery_ids), _HANDLED)
    return connection.execute(query.where(*own, *which).order_by(run.c.delivery_id)).all()


def _having(connection: Connection, delivery_ids: Sequence[int], names: Collection[str]) -> set[int]:
    """Return those of the deliveries that have a run under one of these names."""
    its = (in_values(run.c.delivery_id, delivery_ids), in_values(run.c.handler, names))
    return {*connection.execute(select(run.c.delivery_id).where(*its)).scalars()}


def _rename(
    connection: Connection,
    rows: Sequence[Any],
    to: str,
    options: dict[int, RunOptions],
    now: datetime,
) -> None:
    # The counts have these attempts, as those of the former handler. They are not counted as the other's too.
    of_these = in_values(failure.c.run_id, [row.id for row in rows])
    connection.execute(update(failure).where(of_these).values(retried=0))
    reopened: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row.of != DeliveryState.PLANNED.value:
            check(DeliveryState(row.of), DeliveryState.PLANNED)
            reopened[row.of].append(row.delivery_id)
    again = update(delivery).values(state=DeliveryState.PLANNED.value, **NO_REASON)
    for state, ids in reopened.items():
        connection.execute(again.where(in_values(delivery.c.id, ids), delivery.c.state == state))
    plans = [RunPlan(row.delivery_id, (to,), options={to: options[row.delivery_id]}) for row in rows]
    change_runs(connection, plans, {row.delivery_id: row.id for row in rows}, now)
