"""The short way on PostgreSQL: single statements of the driver's own, on connections with autocommit."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg

from billhook.failpoints import reach
from billhook.inbox.express import Look
from billhook.inbox.postgres.driver import PatientConnection, is_lost
from billhook.inbox.records import Claim, Outcome, Plan, Stored

__all__ = ["PostgresExpress"]

Cursor = psycopg.Cursor[Any]

_UNREAD = """
    SELECT id, source, key, event_type, body, headers, signed_at, received_at, slot, sent_as
    FROM delivery WHERE id = %s AND state IN ('received')
"""
_DUE = "SELECT 1 FROM run WHERE delivery_id = %s AND state IN ('due', 'running') AND due_at <= %s LIMIT 1"
_BEGIN = """
    WITH planned AS (
        UPDATE delivery SET state = 'planned' WHERE id = %(delivery)s AND state = 'received' RETURNING id
    ), others AS (
        INSERT INTO run (delivery_id, handler, state, attempts, due_at, token)
        SELECT planned.id, handler, 'due', 0, %(now)s, token
        FROM planned, unnest(%(handlers)s::text[], %(tokens)s::int[]) AS other (handler, token)
    )
    INSERT INTO run (delivery_id, handler, state, attempts, due_at, token, lease_owner)
    SELECT id, %(handler)s, 'running', 1, %(leased_until)s, %(token)s, %(owner)s FROM planned
    RETURNING id
"""
# A statement before the next: that one then sees what others did before they let go of the row.
_LOCK = "SELECT 1 FROM delivery WHERE id = %s FOR UPDATE"
_FINISH = """
    WITH finished AS (
        UPDATE run SET state = 'succeeded', finished_at = %(at)s, last_error = NULL, lease_owner = NULL
        WHERE id = %(run)s AND token = %(token)s AND state = 'running' RETURNING id
    ), concluded AS (
        UPDATE delivery SET state = 'done' WHERE id = %(delivery)s AND state = 'planned'
        AND EXISTS (SELECT 1 FROM finished)
        AND NOT EXISTS (
            SELECT 1 FROM run WHERE delivery_id = %(delivery)s AND id <> %(run)s AND state <> 'succeeded'
        )
    )
    SELECT id FROM finished
"""


class PostgresExpress:
    """See billhook.inbox.express.Express. A connection is one thread's for a moment, then the next one's."""

    def __init__(
        self,
        connect: Callable[[], PatientConnection],
        storage_errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`connect` opens a connection with autocommit; in `storage_errors` the driver's errors are ours."""
        self._connect = connect
        self._storage_errors = storage_errors
        self._spare: dict[int, list[Cursor]] = {}  # by process: a fork's parent keeps its own

    @contextmanager
    def look(self, delivery_id: int, now: datetime) -> Iterator[Look]:
        """Look at a delivery, and begin it in the block, or not."""
        with self._cursor() as cursor:
            row = cursor.execute(_UNREAD, (delivery_id,)).fetchone()
            due = row is None and cursor.execute(_DUE, (delivery_id, now)).fetchone() is not None
            stored = None if row is None else _stored(row)
            yield Look(stored, due, partial(_begin, cursor, stored))

    def finish(self, outcome: Outcome) -> bool:
        """Settle the success of a delivery's only run; False when its lease was lost."""
        values = {
            "run": outcome.run_id,
            "token": outcome.token,
            "delivery": outcome.delivery_id,
            "at": outcome.at,
        }
        with self._cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(_LOCK, (outcome.delivery_id,))
            finished = cursor.execute(_FINISH, values).fetchone() is not None
            reach("in_settle")
            cursor.execute("COMMIT")
        reach("after_settle")
        return finished

    def close(self) -> None:
        """Close this process's connections."""
        for cursor in self._spare.pop(os.getpid(), []):
            cursor.connection.close()

    @contextmanager
    def _cursor(self) -> Iterator[Cursor]:
        spare = self._spare.setdefault(os.getpid(), [])
        with self._storage_errors():
            cursor = spare.pop() if spare else self._connect().cursor()
            if is_lost(cursor.connection):  # the server was restarted while nothing came
                cursor.connection.close()
                cursor = self._connect().cursor()
            try:
                yield cursor
            except BaseException:
                cursor.connection.close()  # whatever it was in the middle of
                raise
            spare.append(cursor)


def _begin(
    cursor: Cursor,
    stored: Stored | None,
    planned: Plan,
    owner: str,
    now: datetime,
    leased_until: datetime,
) -> Claim | None:
    if stored is None:
        return None
    first, *others = planned.handlers
    token = secrets.randbits(30)
    values = {
        "delivery": stored.delivery_id,
        "handler": first,
        "token": token,
        "owner": owner,
        "leased_until": leased_until,
        "handlers": others,
        "tokens": [secrets.randbits(30) for _ in others],
        "now": now,
    }
    row = cursor.execute(_BEGIN, values).fetchone()
    if row is None:
        return None
    reach("after_plan")
    reach("after_claim")
    return Claim(row[0], token, first, 1, leased_until, stored)


def _stored(row: tuple[Any, ...]) -> Stored:
    *facts, signed_at, received_at, slot, sent_as = row
    times = None if signed_at is None else signed_at.astimezone(UTC), received_at.astimezone(UTC)
    return Stored(*(*facts, *times, slot, sent_as))
