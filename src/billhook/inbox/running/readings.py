"""The runs that read deliveries: such a run is deleted when it ends, and the plan that it made is written.

See billhook.engines.reading. None is ever in a finished state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import Connection, delete, func, select, update

from billhook.inbox.running.leases import LEASE, UNSETTLED, lease_parameters
from billhook.inbox.running.ordering import OrderKey
from billhook.inbox.tables.records import Lease
from billhook.inbox.tables.schema import failure, run, watermark
from billhook.inbox.tables.sql import in_parameter
from billhook.inbox.tables.states import RunState

_ENDED = (
    delete(run)
    .where(in_parameter(run.c.id, "run_ids"), in_parameter(LEASE, "leases"), UNSETTLED)
    .returning(run.c.id, run.c.token, run.c.attempts, run.c.handler, run.c.order_key)
)


def end_readings(connection: Connection, leases: Iterable[Lease]) -> tuple[set[Lease], list[OrderKey]]:
    """Delete the readings whose lease still holds, under inbox.tables.locks; return these, and their order.

    The caller writes what they found, and then releases what waits for them.
    """
    rows = connection.execute(_ENDED, lease_parameters(leases)).all()
    if any(row.attempts > 1 for row in rows):
        forget_failures(connection)
    keys = [OrderKey(row.handler, row.order_key) for row in rows if row.order_key is not None]
    return {Lease(row.id, row.token) for row in rows}, keys


def forget_failures(connection: Connection) -> None:
    """Move the watermark of counts back behind failures that were deleted with their runs.

    SQLite gives the ids of the newest rows again, and would not count what has them next.
    """
    newest = select(func.coalesce(func.max(failure.c.id), 0)).scalar_subquery()
    behind = update(watermark).where(watermark.c.failure_id > newest)
    connection.execute(behind.values(failure_id=newest))


def mark_alone(connection: Connection, leases: Collection[Lease]) -> None:
    """Have readings that are due again claimed alone, as suspects are."""
    again = update(run).where(
        in_parameter(run.c.id, "run_ids"),
        in_parameter(LEASE, "leases"),
        run.c.state == RunState.DUE.value,
    )
    connection.execute(again.values(runs_alone=1), lease_parameters(leases))
