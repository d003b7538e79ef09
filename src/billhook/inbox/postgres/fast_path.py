"""The fast path on PostgreSQL: single statements by the driver, on connections with autocommit."""

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
from billhook.inbox import migrate
from billhook.inbox.counts import Counts, add_on_postgres, shard_of
from billhook.inbox.postgres.driver import DeadlineConnection, is_lost
from billhook.inbox.records import Claim, DeliverySnapshot, RunPlan, RunResult, StoredDelivery
from billhook.threads import reset_in_child

__all__ = ["PostgresFastPath"]

Cursor = psycopg.Cursor[Any]

_UNREAD = """
    SELECT id, source, key, event_type, body, headers, signed_at, received_at, duplicate_slot, sent_as,
        (SELECT count(*) FROM billhook_handler WHERE paused_at IS NOT NULL)
    FROM delivery WHERE id = %s AND state IN ('received')
"""
_DUE = "SELECT 1 FROM run WHERE delivery_id = %s AND state IN ('due', 'running') AND due_at <= %s LIMIT 1"
_OWN_SCHEMA = "%(revision)s = (SELECT version_num FROM billhook_version)"
_BEGIN = f"""
    WITH planned AS (
        UPDATE delivery SET state = 'planned', times_planned = times_planned + 1
        WHERE id = %(delivery)s AND state = 'received' AND {_OWN_SCHEMA} RETURNING id, times_planned
    ), others AS (
        INSERT INTO run (delivery_id, handler, state, attempts, due_at, token)
        SELECT planned.id, handler, 'due', 0, %(now)s, token
        FROM planned, unnest(%(handlers)s::text[], %(tokens)s::int[]) AS other (handler, token)
    )
    , counted AS ({add_on_postgres(also_from="planned,", where="planned.times_planned = 1")})
    INSERT INTO run (delivery_id, handler, state, attempts, due_at, token, lease_owner, started_at)
    SELECT id, %(handler)s, 'running', 1, %(leased_until)s, %(token)s, %(owner)s, %(now)s FROM planned
    RETURNING id
"""  # noqa: S608 - of constants
# A statement of its own: the next one then sees what others committed before they released the row.
_LOCK = "SELECT 1 FROM delivery WHERE id = %s FOR NO KEY UPDATE"
_FINISH = f"""
    WITH finished AS (
        UPDATE run SET state = 'succeeded', finished_at = %(at)s, last_error = NULL, lease_owner = NULL,
            started_at = coalesce(%(started_at)s, started_at), duration_seconds = %(duration_seconds)s
        WHERE id = %(run)s AND token = %(token)s AND state = 'running' AND {_OWN_SCHEMA}
        RETURNING handler
    ), concluded AS (
        UPDATE delivery SET state = 'done' WHERE id = %(delivery)s AND state = 'planned'
        AND EXISTS (SELECT 1 FROM finished)
        AND NOT EXISTS (
            SELECT 1 FROM run WHERE delivery_id = %(delivery)s AND id <> %(run)s AND state <> 'succeeded'
        )
    )
    , counted AS ({add_on_postgres(handler="finished.handler", also_from="finished,")})
    SELECT 1 FROM finished
"""  # noqa: S608 - of constants


class PostgresFastPath:
    """See billhook.inbox.database.FastPath. Threads take turns with each connection."""

    def __init__(
        self,
        connect: Callable[[], DeadlineConnection],
        storage_errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`connect` opens a connection with autocommit; `storage_errors` translates its errors."""
        self._connect = connect
        self._storage_errors = storage_errors
        self._parents_cursors: list[list[Cursor]] = []
        self._spare: list[Cursor] = []
        reset_in_child(self._reset_in_child)

    def _reset_in_child(self) -> None:
        self._parents_cursors.append(self._spare)  # kept open: closing them would end the parent's sessions
        self._spare = []

    @contextmanager
    def read(self, delivery_id: int, now: datetime) -> Iterator[DeliverySnapshot]:
        """Read a delivery; the block may plan and claim it."""
        with self._cursor() as cursor:
            row = cursor.execute(_UNREAD, (delivery_id,)).fetchone()
            due = row is None and cursor.execute(_DUE, (delivery_id, now)).fetchone() is not None
            stored, paused = (None, 0) if row is None else (_stored(row[:-1]), row[-1])
            yield DeliverySnapshot(stored, due, paused, partial(_plan_and_claim, cursor, stored))

    def settle(self, result: RunResult) -> bool:
        """Settle the success of a delivery's only run; False when its lease was lost."""
        counts = Counts()
        counts.add_result(result, handler="")
        values = {
            "revision": migrate.REVISION,
            "run": result.run_id,
            "token": result.token,
            "delivery": result.delivery_id,
            "at": result.at,
            "started_at": result.started_at,
            "duration_seconds": result.duration_seconds,
            # Of the handler that the statement finds.
            "counts": counts.for_postgres(shard_of(str(os.getpid()))),
        }
        with self._cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(_LOCK, (result.delivery_id,))
            finished = cursor.execute(_FINISH, values).fetchone() is not None
            reach("in_settle")
            cursor.execute("COMMIT")
        reach("after_settle")
        return finished

    def close(self) -> None:
        """Close this process's connections."""
        spare, self._spare = self._spare, []
        for cursor in spare:
            cursor.connection.close()

    @contextmanager
    def _cursor(self) -> Iterator[Cursor]:
        spare = self._spare
        with self._storage_errors():
            cursor = spare.pop() if spare else self._connect().cursor()
            if is_lost(cursor.connection):  # the server was restarted between two deliveries
                cursor.connection.close()
                cursor = self._connect().cursor()
            try:
                yield cursor
            except BaseException:
                cursor.connection.close()  # its transaction may be open
                raise
            spare.append(cursor)  # only after success: a connection that failed is never used again


def _plan_and_claim(
    cursor: Cursor,
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
    counts = Counts()
    counts.add_plans([planned], {stored.delivery_id: stored.received_at}, (), now)
    values = {
        "revision": migrate.REVISION,
        "delivery": stored.delivery_id,
        "handler": first,
        "token": token,
        "owner": owner,
        "leased_until": leased_until,
        "handlers": others,
        "tokens": [secrets.randbits(30) for _ in others],
        "now": now,
        "counts": counts.for_postgres(shard_of(owner)),
    }
    row = cursor.execute(_BEGIN, values).fetchone()
    if row is None:
        return None
    reach("after_plan")
    reach("after_claim")
    return Claim(row[0], token, first, 1, leased_until, stored)


def _stored(row: tuple[Any, ...]) -> StoredDelivery:
    *columns, signed_at, received_at, slot, sent_as = row
    times = None if signed_at is None else signed_at.astimezone(UTC), received_at.astimezone(UTC)
    return StoredDelivery(*(*columns, *times, slot, sent_as))
