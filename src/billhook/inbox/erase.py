"""Erase deliveries for an operator: their content is removed for good, and the key is kept.

An erased delivery has lost body, headers and errors, identifying values, the digest of the body, and of its
runs the errors, the failed attempts and the keys that are made of the body's fields. Left are what tells a
duplicate and what was done: source, key, type, times, and each handler with its result. Without a digest
every later delivery of the same key and type counts as a duplicate, with any bytes. It is never replayed, for
no handler may be called with an empty body.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, select, update

from billhook.inbox.counts import keeping
from billhook.inbox.discard import discard_in
from billhook.inbox.inbox import Inbox
from billhook.inbox.issues import clear_texts
from billhook.inbox.limits import forget_errors
from billhook.inbox.locks import lock_counts, lock_deliveries, lock_order
from billhook.inbox.retention import FINISHED
from billhook.inbox.schema import NO_IDENTIFIERS, delivery, failure, run
from billhook.inbox.sql import in_states, in_values
from billhook.inbox.states import DeliveryState, check

_UNFINISHED = (DeliveryState.RECEIVED, DeliveryState.PLANNED)
_LOG_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class EraseResult:
    """How many deliveries were erased, were discarded for it, or are left because they are not finished."""

    deliveries: int = 0
    discarded: int = 0
    unfinished: int = 0

    def __add__(self, other: EraseResult) -> EraseResult:
        return EraseResult(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def erase(
    inbox: Inbox,
    delivery_ids: Sequence[int],
    now: datetime,
    *,
    discard_unfinished: bool = False,
    dry_run: bool = False,
) -> EraseResult:
    """Erase these deliveries, in one transaction; call `empty_log` after the last batch.

    One that is not finished is left as it is; with `discard_unfinished` it is discarded first. Deliveries
    that are pruned or erased stay as they are. A `dry_run` counts and changes nothing.
    """
    with inbox.database.read() if dry_run else inbox.database.write() as connection:
        if not dry_run:
            lock_counts(connection)
            lock_order(connection, delivery_ids)
            lock_deliveries(connection, delivery_ids)
        unfinished = _in_states(connection, delivery_ids, *_UNFINISHED)
        discarded = list(unfinished) if discard_unfinished else []
        if discarded and not dry_run:
            discard_in(connection, discarded, "erased", now, inbox.known_types)
        states = _in_states(connection, delivery_ids, *FINISHED)
        if not dry_run:
            with keeping(connection, states, inbox.known_types):
                _empty(connection, states)
        number = len(states.keys() | set(discarded))
        return EraseResult(number, len(discarded), len(unfinished) - len(discarded))


def _in_states(
    connection: Connection, delivery_ids: Sequence[int], *states: DeliveryState
) -> dict[int, DeliveryState]:
    query = select(delivery.c.id, delivery.c.state).where(
        in_values(delivery.c.id, delivery_ids), in_states(delivery.c.state, *states)
    )
    return {row.id: DeliveryState(row.state) for row in connection.execute(query)}


def _empty(connection: Connection, states: dict[int, DeliveryState]) -> None:
    for before in set(states.values()):
        check(before, DeliveryState.ERASED)
    own = in_values(run.c.delivery_id, states)
    # The reason why a handler is paused ends with the last error, which may quote the body.
    failed = select(failure.c.error).where(failure.c.run_id.in_(select(run.c.id).where(own)))
    forget_errors(connection, set(connection.execute(failed).scalars()))
    clear_texts(connection, list(states))
    connection.execute(delete(failure).where(failure.c.run_id.in_(select(run.c.id).where(own))))
    # The order key and the identity are made of fields of the body.
    connection.execute(update(run).where(own).values(last_error=None, order_key=None, identity=None))
    connection.execute(
        update(delivery)
        .where(in_values(delivery.c.id, states), in_states(delivery.c.state, *FINISHED))
        .values(
            state=DeliveryState.ERASED.value,
            body=b"",
            headers="{}",
            error=None,
            digest=None,
            **NO_IDENTIFIERS,
        )
    )


def empty_log(inbox: Inbox) -> bool:
    """Remove what was erased from the database's log, where that is a file beside it; False if it stays.

    It stays while a process reads the inbox all the time, until the next time that no process does.
    """
    path = getattr(inbox.database, "path", None)
    if path is None:
        return True
    file = path.resolve()  # where the path is a link, the log is beside the file itself
    log = file.with_name(file.name + "-wal")
    end = time.monotonic() + _LOG_SECONDS
    while True:
        inbox.database.checkpoint(at_once=True)
        if not log.exists() or log.stat().st_size == 0:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.02)  # a worker's poll holds the log for some milliseconds
