"""Claims: take due runs under a lease, renew or release the lease, and expire leases that ran out.

A run whose lease ran out belonged to a worker that died or was silent for too long:

- A run that was only queued there was never called. It is due again, and its attempt does not count.
- A run that had been started becomes a suspect: it may have killed its worker, so it is claimed alone from
  then on (see billhook.engines.suspects).
- A suspect that was running alone was the cause: this attempt counts, and so does the one before it.
- A suspect that was joined by other runs, because it took long, is excused again, up to a limit: it may be
  the one that kills late.

Runs that wait in their order are no business of this module: see billhook.inbox.ordering.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Text, and_, case, cast, insert, select, update

from billhook.inbox.pending import CLAIMABLE, NOT_SUSPECT, STORED_COLUMNS, SUSPECT
from billhook.inbox.records import Claim, Lease, StoredDelivery
from billhook.inbox.schema import delivery, failure, run
from billhook.inbox.sql import in_values
from billhook.inbox.states import RunState

__all__ = ["LOST", "RunClaims", "is_held"]

LOST = "the worker died, or was silent for longer than its lease"
_QUEUED = " queued"
"""Suffix of the lease owner: the claim waits in the worker's queue for a thread."""
_LOST_IN_QUEUE = "lost queued"
"""Owner of a due run that was lost in a queue: it is not queued again, where it would never count."""
_JOINED = " joined"
"""Suffix of the lease owner: a suspect that other runs were started beside, because it takes long."""
_LOST_JOINED = "lost joined"
"""Owner of a due suspect that was joined: it is claimed after the others, which settle sooner."""
_EXPIRE_LIMIT = 500
_MOST_JOINED = 8
"""A suspect that was excused this often is what those losses have in common."""

_CLAIMED = (
    run.c.id.label("run_id"),
    run.c.token,
    run.c.handler,
    run.c.attempts,
    run.c.state,
    run.c.lease_owner,
    run.c.delivery_id,
    run.c.due_at,
    run.c.alone,
    run.c.excused,
)

# Id and token as one text: SQLite walks the whole table for a list of pairs (see billhook.inbox.sql).
_LEASE_TEXT = cast(run.c.id, Text).concat(":").concat(cast(run.c.token, Text))


class RunClaims:
    """The leases of one owner, in one write transaction. Leases are pairs of run id and fencing token."""

    def __init__(self, connection: Connection, owner: str) -> None:
        self._connection = connection
        self._owner = owner
        self.steps: list[str] = []

    def claim(
        self,
        limit: int,
        now: datetime,
        leased_until: datetime,
        only: int | None = None,
        idle: int | None = None,
        *,
        suspects: bool = True,
        spread: timedelta = timedelta(0),
    ) -> list[Claim]:
        """Claim up to `limit` due runs, of one delivery if `only` names it; their attempt counts from now.

        The first `idle` of them (default: all) start at once. The others are marked as queued: if their
        worker dies, that is no attempt of theirs. Without `suspects`, suspects are left for
        `claim_suspect`; those found just now become due within `spread`.
        """
        query = select(*_CLAIMED).where(CLAIMABLE, run.c.due_at <= now)
        if only is not None:
            query = query.where(run.c.delivery_id == only)
        if not suspects:
            query = query.where(NOT_SUSPECT)
        query = query.order_by(run.c.due_at, run.c.id).limit(limit)
        rows = _lock_rows(self._connection, query)
        while any(row.state == RunState.RUNNING for row in rows):
            _expire_leases(self._connection, now, only=only, spread=spread)
            rows = _lock_rows(self._connection, query)
        starting = rows if idle is None else rows[:idle]
        # A run that was lost in a queue starts at once or stays due: only a started run can be found out.
        queued = list(takewhile(lambda row: row.lease_owner != _LOST_IN_QUEUE, rows[len(starting) :]))
        claims = self._mark_running(starting, self._owner, leased_until)
        claims += self._mark_running(queued, self._owner + _QUEUED, leased_until)
        if claims:
            self.steps.append("claim")
        return claims

    def claim_suspect(self, now: datetime, leased_until: datetime, only: int | None = None) -> Claim | None:
        """Claim one due suspect, to be run beside nothing else.

        First those with the fewest attempts that count; those that were joined when they were lost come last.
        """
        query = select(*_CLAIMED).where(SUSPECT, run.c.due_at <= now)
        if only is not None:
            query = query.where(run.c.delivery_id == only)
        joined = case((run.c.lease_owner == _LOST_JOINED, 1), else_=0)
        order = (joined, run.c.attempts - run.c.excused, run.c.due_at, run.c.id)
        rows = _lock_rows(self._connection, query.order_by(*order).limit(1))
        if not rows:
            return None
        self.steps.append("claim")
        return self._mark_running(rows, self._owner, leased_until)[0]

    def mark_joined(self, held: Sequence[Lease]) -> None:
        """Mark running suspects as joined: other runs are started beside them."""
        if held:
            self._connection.execute(
                update(run)
                .where(is_held(held), run.c.alone == 1, ~run.c.lease_owner.endswith(_JOINED))
                .values(lease_owner=run.c.lease_owner + _JOINED)
            )

    def renew(self, held: Sequence[Lease], leased_until: datetime) -> set[Lease]:
        """Extend leases; returns those that are still held."""
        if not held:
            return set()
        extended = update(run).where(is_held(held)).values(due_at=leased_until)
        return set(map(Lease._make, self._connection.execute(extended.returning(run.c.id, run.c.token))))

    def release(self, held: Sequence[Lease], now: datetime) -> None:
        """Release claimed runs that were never called: due at once, their attempt not counted."""
        if held:
            self._connection.execute(update(run).where(is_held(held)).values(_released(now)))

    def release_orphaned(self, held: Sequence[Lease], now: datetime) -> int:
        """Release this owner's claims beside `held`; returns how many there were.

        They come from a transaction whose COMMIT succeeded while its reply was lost: the worker took it for
        failed, so nobody called these runs. Only for an owner whose name is unique to one worker and is no
        prefix of another's.
        """
        return self._connection.execute(
            update(run)
            .where(
                CLAIMABLE,  # so that the partial index applies
                run.c.state == RunState.RUNNING.value,
                run.c.lease_owner.startswith(self._owner, autoescape=True),
                ~in_values(_LEASE_TEXT, _texts(held)),
            )
            .values(_released(now))
        ).rowcount

    def _mark_running(self, rows: Sequence[Any], owner: str, leased_until: datetime) -> list[Claim]:
        if not rows:
            return []
        self._connection.execute(
            update(run)
            .where(in_values(run.c.id, [row.run_id for row in rows]))
            .values(
                state=RunState.RUNNING.value,
                attempts=run.c.attempts + 1,
                token=run.c.token + 1,
                due_at=leased_until,
                lease_owner=owner,
            )
        )
        return [_claim(row, leased_until) for row in rows]


def is_held(held: Sequence[Lease]) -> ColumnElement[bool]:
    """Return the condition that a run is one of these, and its lease still holds."""
    return and_(
        in_values(run.c.id, [run_id for run_id, _ in held]),  # finds the rows by their index
        in_values(_LEASE_TEXT, _texts(held)),  # then compares the tokens
        run.c.state == RunState.RUNNING.value,
    )


def _texts(held: Sequence[Lease]) -> list[str]:
    return [f"{run_id}:{token}" for run_id, token in held]


def _released(now: datetime) -> dict[str, Any]:
    return {
        "state": RunState.DUE.value,
        "due_at": now,
        "attempts": run.c.attempts - 1,
        "lease_owner": None,
    }


def _lock_rows(connection: Connection, query: Select[Any]) -> list[Any]:
    """Lock a few runs by the index alone, then read their deliveries: no body is read for a skipped row."""
    few = query.with_for_update(skip_locked=True).cte("few")
    rows = connection.execute(select(few, *STORED_COLUMNS).join(delivery, delivery.c.id == few.c.delivery_id))
    # Sorted here: the database would move the bodies about to sort the rows.
    return sorted(rows, key=lambda row: (row.due_at, row.run_id))


def _claim(row: Any, leased_until: datetime) -> Claim:
    return Claim(
        row.run_id,
        row.token + 1,
        row.handler,
        row.attempts + 1,
        leased_until,
        StoredDelivery(*tuple(row)[len(_CLAIMED) :]),
        row.excused,
        row.alone == 1,
    )


def _expire_leases(connection: Connection, now: datetime, *, only: int | None, spread: timedelta) -> None:
    """Make runs due whose lease ran out, a few hundred at a time, of one delivery if `only` names it.

    Each suspect becomes due at a random moment within `spread`: runs that died together shall not meet again.
    """
    query = select(run.c.id, run.c.attempts, run.c.lease_owner, run.c.alone, run.c.excused).where(
        CLAIMABLE,  # so that the partial index applies
        run.c.state == RunState.RUNNING.value,
        run.c.due_at <= now,
    )
    if only is not None:
        query = query.where(run.c.delivery_id == only)
    query = query.order_by(run.c.due_at, run.c.id).limit(_EXPIRE_LIMIT).with_for_update(skip_locked=True)
    rows = connection.execute(query).all()
    queued = [row.id for row in rows if (row.lease_owner or "").endswith(_QUEUED)]
    _make_due(connection, queued, now, {"attempts": run.c.attempts - 1, "lease_owner": _LOST_IN_QUEUE})
    started = [row for row in rows if row.id not in set(queued)]
    for row in started:
        due_at = now + spread * random.random()  # noqa: S311 - not for secrecy
        joined = (row.lease_owner or "").endswith(_JOINED)
        values = {"alone": 1, "excused": _excused(row, joined), "last_error": LOST}
        _make_due(connection, [row.id], due_at, {**values, "lease_owner": _LOST_JOINED if joined else None})
    if started:
        facts = {"failed_at": now, "error": LOST}
        lost = [{"run_id": row.id, "attempt": row.attempts, **facts} for row in started]
        connection.execute(insert(failure), lost)


def _excused(row: Any, joined: bool) -> int:
    """Return how many attempts of a run are excused after one that was lost."""
    excused: int = row.excused
    if not row.alone:
        return excused + 1
    if joined:
        return max(excused, min(excused + 1, _MOST_JOINED))
    return max(0, excused - 1)


def _make_due(connection: Connection, ids: list[int], due_at: datetime, values: dict[str, Any]) -> None:
    if ids:
        due = {"state": RunState.DUE.value, "due_at": due_at}
        connection.execute(update(run).where(in_values(run.c.id, ids)).values({**due, **values}))
