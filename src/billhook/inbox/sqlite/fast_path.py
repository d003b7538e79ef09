"""The fast path on SQLite: statements by the driver, as SQLAlchemy would be most of the cost."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import partial
from typing import cast

from billhook.failpoints import reach
from billhook.inbox.counts import ADD_ON_SQLITE, Counts
from billhook.inbox.records import Claim, DeliverySnapshot, RunPlan, RunResult, StoredDelivery
from billhook.inbox.sql import utc_moment, utc_text

__all__ = ["SqliteFastPath"]

Raw = Callable[[], AbstractContextManager[sqlite3.Connection]]

_UNREAD = """
    SELECT id, source, key, event_type, body, headers, signed_at, received_at, duplicate_slot, sent_as,
        (SELECT count(*) FROM billhook_handler WHERE paused_at IS NOT NULL)
    FROM delivery WHERE id = ? AND state = 'received'
"""
_DUE = "SELECT 1 FROM run WHERE delivery_id = ? AND state IN ('due', 'running') AND due_at <= ? LIMIT 1"
_PLAN = """
    UPDATE delivery SET state = 'planned', times_planned = times_planned + 1
    WHERE id = ? AND state = 'received' RETURNING times_planned
"""
_RUN = """
    INSERT INTO run (delivery_id, handler, state, attempts, due_at, token, lease_owner, started_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_FINISH = """
    UPDATE run SET state = 'succeeded', finished_at = ?, started_at = coalesce(?, started_at),
        duration_seconds = ?, last_error = NULL, lease_owner = NULL
    WHERE id = ? AND token = ? AND state = 'running' RETURNING handler
"""
_CONCLUDE = """
    UPDATE delivery SET state = 'done' WHERE id = ? AND state = 'planned'
    AND NOT EXISTS (SELECT 1 FROM run WHERE delivery_id = delivery.id AND state <> 'succeeded')
"""


class SqliteFastPath:
    """See billhook.inbox.database.FastPath."""

    def __init__(self, read: Raw, write: Raw) -> None:
        """`read` and `write` open driver connections, `write` in a transaction."""
        self._read = read
        self._write = write

    @contextmanager
    def read(self, delivery_id: int, now: datetime) -> Iterator[DeliverySnapshot]:
        """Read a delivery; `plan_and_claim` is a transaction of its own, so that reading locks nothing."""
        with self._read() as driver:
            row = driver.execute(_UNREAD, (delivery_id,)).fetchone()
            due = row is None and driver.execute(_DUE, (delivery_id, utc_text(now))).fetchone() is not None
        stored, paused = (None, 0) if row is None else (_stored(row[:-1]), row[-1])
        yield DeliverySnapshot(stored, due, paused, partial(self._plan_and_claim, stored))

    def _plan_and_claim(
        self,
        stored: StoredDelivery | None,
        planned: RunPlan,
        owner: str,
        now: datetime,
        leased_until: datetime,
    ) -> Claim | None:
        if stored is None:
            return None
        first, *others = planned.handlers
        token = secrets.randbits(30)
        with self._write() as driver:
            # The condition on the state decides between two workers that read the same delivery.
            times_planned = driver.execute(_PLAN, (stored.delivery_id,)).fetchone()
            if times_planned is None:
                return None
            started_at = utc_text(now)
            begun = (
                *(stored.delivery_id, first, "running", 1),
                *(utc_text(leased_until), token, owner, started_at),
            )
            run_id = driver.execute(_RUN, begun).lastrowid
            for handler in others:
                due = (stored.delivery_id, handler, "due", 0, started_at, secrets.randbits(30), None, None)
                driver.execute(_RUN, due)
            if times_planned[0] == 1:
                counts = Counts()
                counts.add_plans([planned], {stored.delivery_id: stored.received_at}, (), now)
                _write(driver, counts)
            reach("in_plan")
            reach("in_claim")
        reach("after_plan")
        reach("after_claim")
        return Claim(cast("int", run_id), token, first, 1, leased_until, stored)

    def settle(self, result: RunResult) -> bool:
        """Settle the success of a delivery's only run; False when its lease was lost."""
        with self._write() as driver:
            # The fencing: the token in the condition, so the result of an old claim changes nothing.
            started_at = None if result.started_at is None else utc_text(result.started_at)
            values = (utc_text(result.at), started_at, result.duration_seconds, *result.lease)
            finished = driver.execute(_FINISH, values).fetchone()
            if finished is None:
                return False
            driver.execute(_CONCLUDE, (result.delivery_id,))
            counts = Counts()
            counts.add_result(result, finished[0])
            _write(driver, counts)
            reach("in_settle")
        reach("after_settle")
        return True


def _write(driver: sqlite3.Connection, counts: Counts) -> None:
    driver.executemany(ADD_ON_SQLITE, counts.for_sqlite())


def _stored(row: tuple[int, str, str, str, bytes, str, str | None, str, str, str | None]) -> StoredDelivery:
    signed_at, received_at, slot, sent_as = row[6:]
    times = None if signed_at is None else utc_moment(signed_at), utc_moment(received_at)
    return StoredDelivery(*row[:6], *times, slot, sent_as)
