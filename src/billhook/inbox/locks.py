"""The row locks of a transaction, taken in one order by everybody, so that nobody waits in a circle.

First the order's, then deliveries by id, then runs. On SQLite a transaction that writes has the file to
itself, and nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, exists, func, select

from billhook.inbox.clauses import among
from billhook.inbox.records import Outcome, Plan
from billhook.inbox.schema import delivery, run

__all__ = ["lock_conflicts", "lock_deliveries", "lock_for", "lock_order"]

_ORDER = 0x6F726472  # "ordr"
_CONFLICTS = 0x636F6E66  # "conf"


def lock_for(connection: Connection, outcomes: Sequence[Outcome], plans: Sequence[Plan]) -> None:
    """What settling these outcomes and planning these deliveries needs."""
    if connection.dialect.name != "postgresql" or not (outcomes or plans):
        return
    if any(plan.terms for plan in plans):
        lock_order(connection)
    elif outcomes:
        lock_order(connection, among(run.c.id, [outcome.run_id for outcome in outcomes]))
    settled = {outcome.delivery_id for outcome in outcomes}
    lock_deliveries(connection, settled | {plan.delivery_id for plan in plans})


def lock_order(connection: Connection, runs: ColumnElement[bool] | None = None) -> None:
    """Keep everybody else from planning, settling and replaying ordered runs until this transaction ends.

    Whoever looks afterwards who is next sees what all others before it did. With `runs`, only if any of
    these is ordered: a run's order key never changes.
    """
    if connection.dialect.name == "postgresql":
        hold = select(func.pg_advisory_xact_lock(_ORDER))
        if runs is not None:
            hold = hold.where(exists(select(run.c.id).where(runs, run.c.order_key.is_not(None))))
        connection.execute(hold)


def lock_conflicts(connection: Connection) -> None:
    """Keep everybody else from storing conflicts until this transaction ends: each sees those before it."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_CONFLICTS)))


def lock_deliveries(connection: Connection, delivery_ids: Iterable[int]) -> None:
    """Wait until nobody else plans, settles or replays any of these, and let nobody begin to.

    Of two that settle the last two runs of a delivery, the second sees what the first wrote; and no later
    deliveries are planned while another's earlier ones are not committed.
    """
    if connection.dialect.name == "postgresql":
        rows = select(delivery.c.id).where(among(delivery.c.id, sorted(delivery_ids)))
        connection.execute(rows.order_by(delivery.c.id).with_for_update())
