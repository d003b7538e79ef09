"""The short way on SQLite: the driver's own statements, for SQLAlchemy's part would be most of the cost."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, cast

from billhook.failpoints import reach
from billhook.inbox.express import Look
from billhook.inbox.records import Claim, Outcome, Plan, Stored

if TYPE_CHECKING:
    from billhook.inbox.sqlite.database import SqliteDatabase

__all__ = ["SqliteExpress"]

_UNREAD = """
    SELECT id, source, key, event_type, body, headers, signed_at, received_at, slot, sent_as
    FROM delivery WHERE id = ? AND state = 'received'
"""
_DUE = "SELECT 1 FROM run WHERE delivery_id = ? AND state IN ('due', 'running') AND due_at <= ? LIMIT 1"
_PLAN = "UPDATE delivery SET state = 'planned' WHERE id = ? AND state = 'received'"
_RUN = """
    INSERT INTO run (delivery_id, handler, state, attempts, due_at, token, lease_owner)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_FINISH = """
    UPDATE run SET state = 'succeeded', finished_at = ?, last_error = NULL, lease_owner = NULL
    WHERE id = ? AND token = ? AND state = 'running'
"""
_CONCLUDE = """
    UPDATE delivery SET state = 'done' WHERE id = ? AND state = 'planned'
    AND NOT EXISTS (SELECT 1 FROM run WHERE delivery_id = delivery.id AND state <> 'succeeded')
"""


class SqliteExpress:
    """See billhook.inbox.express.Express."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    @contextmanager
    def look(self, delivery_id: int, now: datetime) -> Iterator[Look]:
        """Look at a delivery; to begin is a transaction of its own, for this one must not hold the file."""
        with self._database.glance() as driver:
            row = driver.execute(_UNREAD, (delivery_id,)).fetchone()
            due = row is None and driver.execute(_DUE, (delivery_id, _text(now))).fetchone() is not None
        stored = None if row is None else _stored(row)
        yield Look(stored, due, partial(self._begin, stored))

    def _begin(
        self, stored: Stored | None, planned: Plan, owner: str, now: datetime, leased_until: datetime
    ) -> Claim | None:
        if stored is None:
            return None
        first, *others = planned.handlers
        token = secrets.randbits(30)
        with self._database.direct() as driver:
            if not driver.execute(_PLAN, (stored.delivery_id,)).rowcount:
                return None
            begun = (stored.delivery_id, first, "running", 1, _text(leased_until), token, owner)
            run_id = driver.execute(_RUN, begun).lastrowid
            for handler in others:
                due = (stored.delivery_id, handler, "due", 0, _text(now), secrets.randbits(30), None)
                driver.execute(_RUN, due)
            reach("in_plan")
            reach("in_claim")
        reach("after_plan")
        reach("after_claim")
        self._database.tidy()
        return Claim(cast("int", run_id), token, first, 1, leased_until, stored)

    def finish(self, outcome: Outcome) -> bool:
        """Settle the success of a delivery's only run; False when its lease was lost."""
        with self._database.direct() as driver:
            if not driver.execute(_FINISH, (_text(outcome.at), outcome.run_id, outcome.token)).rowcount:
                return False
            driver.execute(_CONCLUDE, (outcome.delivery_id,))
            reach("in_settle")
        reach("after_settle")
        self._database.tidy()
        return True


def _text(moment: datetime) -> str:
    """A datetime as SQLAlchemy writes it to SQLite."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _stored(row: tuple[int, str, str, str, bytes, str, str | None, str, str, str | None]) -> Stored:
    signed_at, received_at, slot, sent_as = row[6:]
    times = None if signed_at is None else _moment(signed_at), _moment(received_at)
    return Stored(*row[:6], *times, slot, sent_as)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
