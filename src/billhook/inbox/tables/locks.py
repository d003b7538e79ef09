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

from sqlalchemy import Connection

from billhook.inbox.tables.dialect import dialect_of


def lock_counts(connection: Connection) -> None:
    """Keep other transactions from changing what is counted, and the watermark, until this one ends.

    No engine or receiver takes this lock: see billhook.inbox.counting.counts.
    """
    dialect_of(connection).hold(connection, "counts")


def try_to_lock_counts(connection: Connection) -> bool:
    """Return whether it has the lock of `lock_counts`; never waits."""
    return dialect_of(connection).try_to_lock_counts(connection)


def lock_order(connection: Connection, delivery_ids: Collection[int] | None = None) -> None:
    """Keep other transactions from planning, settling and replaying ordered runs until this one ends.

    So each transaction that chooses the next run of an order sees the choices before it. With `delivery_ids`,
    only if a run of these is ordered: a run's order key never changes, but where another handler takes over
    a run that is not running.
    """
    dialect_of(connection).hold(connection, "order", delivery_ids)


def lock_conflicts(connection: Connection) -> None:
    """Keep other transactions from storing conflicts until this one ends: each sees those before it."""
    dialect_of(connection).hold(connection, "conflicts")


def lock_limits(connection: Connection) -> None:
    """Keep other transactions from starting, holding and releasing runs of limited handlers.

    The last lock of a transaction: one that holds it waits for nothing more.
    """
    dialect_of(connection).hold(connection, "limits")


def lock_deliveries(connection: Connection, delivery_ids: Collection[int]) -> None:
    """Wait until no other transaction plans, settles or replays any of these, and keep it so.

    Of two transactions that settle the last two runs of a delivery, the second sees what the first wrote. And
    no later deliveries are planned before the earlier ones of another transaction are committed.
    """
    dialect_of(connection).hold(connection, "deliveries", delivery_ids)
