"""The locks of a transaction on PostgreSQL, always taken in one order, so that none deadlock.

First the lock of counts, then that of ordered runs, then deliveries by id, then runs, then the lock of
limits. On SQLite a write transaction locks the whole file, and these functions do nothing. Due runs are
claimed, and leases are ended, by statements that skip rows which another transaction has locked: these wait
for nothing. What a lock cannot keep apart, because no transaction is open while a handler works, the fencing
token does. Of one run, with a lease of 30 s:

     0 s  worker A claims it: state running, token 8, leased until 30 s
    10 s  A's process is stopped by the machine, and renews nothing
    30 s  worker B, of another process, finds the lease ended, makes the run due, and claims it: token 9
    35 s  A goes on, and settles its result where the token is 8: no row has it, and nothing is changed
    40 s  B locks the delivery, settles where the token is 9, and finishes the delivery

Had the delivery a second run, settled by C at 40 s too, the lock of the delivery would let C see B's result:
one of the two finds that no run of it is unfinished.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, exists, func, literal_column, select

from billhook.inbox.schema import closed, delivery, run
from billhook.inbox.sql import in_parameter

_ORDER = 0x6F726472  # "ordr"
_CONFLICTS = 0x636F6E66  # "conf"
_LIMITS = 0x6C696D74  # "limt"
_COUNTS = 0x636E7473  # "cnts"
# Of this inbox, by the number of its table: closing only tries to take it, and another inbox of the database
# must not keep it off. The table has one row.
_COUNTS_OF_INBOX: ColumnElement[int] = literal_column(f"({_COUNTS}::bigint << 32) + tableoid::bigint")
_HOLD_COUNTS = select(func.pg_advisory_xact_lock(_COUNTS_OF_INBOX)).select_from(closed)
_TRY_COUNTS = select(func.pg_try_advisory_xact_lock(_COUNTS_OF_INBOX)).select_from(closed)


def lock_counts(connection: Connection) -> None:
    """Keep other transactions from changing what is counted and from closing it, until this one ends.

    Of engines and receivers none takes it: see billhook.inbox.counts.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_HOLD_COUNTS)


def try_to_lock_counts(connection: Connection) -> bool:
    """Return whether it has the lock of `lock_counts`; never waits."""
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.execute(_TRY_COUNTS).scalar_one())


_HOLD_ORDER = select(func.pg_advisory_xact_lock(_ORDER))
_HOLD_ORDER_OF = _HOLD_ORDER.where(
    exists(
        select(run.c.id).where(in_parameter(run.c.delivery_id, "delivery_ids"), run.c.order_key.is_not(None))
    )
)


def lock_order(connection: Connection, delivery_ids: Collection[int] | None = None) -> None:
    """Keep other transactions from planning, settling and replaying ordered runs until this one ends.

    So each transaction that chooses the next run of an order sees the choices before it. With `delivery_ids`,
    only if a run of these is ordered: a run's order key never changes.
    """
    if connection.dialect.name != "postgresql":
        return
    if delivery_ids is None:
        connection.execute(_HOLD_ORDER)
    else:
        connection.execute(_HOLD_ORDER_OF, {"delivery_ids": list(delivery_ids)})


def lock_conflicts(connection: Connection) -> None:
    """Keep other transactions from storing conflicts until this one ends: each sees those before it."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_CONFLICTS)))


def lock_limits(connection: Connection) -> None:
    """Keep other transactions from starting, holding and releasing runs of limited handlers.

    The last lock of a transaction: one that holds it waits for nothing more.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LIMITS)))


_HOLD_DELIVERIES = (
    select(delivery.c.id)
    .where(in_parameter(delivery.c.id, "delivery_ids"))
    # In the order of the ids: two transactions meet at the lowest id that both need. FOR NO KEY UPDATE: one
    # that writes a run twice has its foreign key checked, and must not wait for this, holding other locks.
    .order_by(delivery.c.id)
    .with_for_update(key_share=True)
)


def lock_deliveries(connection: Connection, delivery_ids: Collection[int]) -> None:
    """Wait until no other transaction plans, settles or replays any of these, and keep it so.

    Of two transactions that settle the last two runs of a delivery, the second sees what the first wrote. And
    no later deliveries are planned before the earlier ones of another transaction are committed.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_HOLD_DELIVERIES, {"delivery_ids": sorted(delivery_ids)})
