"""One write transaction of an engine: settle, plan and claim together cost one fsync."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import takewhile, zip_longest
from types import MappingProxyType
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Select, Text, bindparam, case, select, update

from billhook.inbox import leases, locks
from billhook.inbox.leases import LOST_IN_QUEUE, LOST_NOT_ALONE, QUEUED
from billhook.inbox.limits import PAUSED_COUNT, Limiter
from billhook.inbox.pending import CLAIMABLE, NOT_SUSPECT, STORED_COLUMNS, SUSPECT, NextTimes, next_times
from billhook.inbox.planning import plan
from billhook.inbox.records import (
    Claim,
    DuplicateRun,
    HandlerLimits,
    Lease,
    PausedHandler,
    RunPlan,
    RunResult,
    StoredDelivery,
)
from billhook.inbox.schema import delivery, run
from billhook.inbox.settling import settle
from billhook.inbox.sql import UtcDateTime, in_parameter, in_values, insert_and_find
from billhook.inbox.states import RunState

NO_LIMITS: Mapping[str, HandlerLimits] = MappingProxyType({})
_NONE: Mapping[int, StoredDelivery] = MappingProxyType({})

_NOW = bindparam("now", type_=UtcDateTime)
_CLAIMED = (
    run.c.id.label("run_id"),
    run.c.token,
    run.c.handler,
    run.c.attempts,
    run.c.state,
    run.c.lease_owner,
    run.c.delivery_id,
    run.c.due_at,
    run.c.runs_alone,
    run.c.excused_attempts,
    run.c.replays,
)
_START = (
    update(run)
    .where(in_parameter(run.c.id, "run_ids"))
    .values(
        state=RunState.RUNNING.value,
        attempts=run.c.attempts + 1,
        # The fencing token: from here on, the result of an earlier attempt matches no run.
        token=run.c.token + 1,
        due_at=bindparam("leased_until", type_=UtcDateTime),
        lease_owner=bindparam("owner", type_=Text),
        started_at=_NOW,
        duration_seconds=None,
    )
)
_TRIES = 4
"""How often a claim reads due runs, if their handlers are paused or at their limits."""


class InboxTransaction:
    """What an engine does to the inbox in one transaction, with leases in the name of `owner`.

    `limits` are those of handlers, by the names that their runs are stored under. `duplicates` are the runs
    that were planned and discarded at once; `released` the deliveries of which a run became due because the
    run before it in its order finished, or because its handler may start more; `steps` what it did, for
    failpoints.
    """

    def __init__(
        self, connection: Connection, owner: str, limits: Mapping[str, HandlerLimits] = NO_LIMITS
    ) -> None:
        self._connection = connection
        self._owner = owner
        self._limits = limits
        self._limiter = Limiter(connection, limits)
        self._settled_names: set[str] = set()
        self._limited_results: list[tuple[str, str | None]] = []
        self._locked = False
        self._claimable_plans: list[tuple[RunPlan, StoredDelivery]] = []
        self._planned_at: datetime | None = None
        self.steps: list[str] = []
        self.duplicates: list[DuplicateRun] = []
        self._released: list[int] = []

    def lock(self, results: Sequence[RunResult], plans: Sequence[RunPlan]) -> None:
        """Take all row locks of a transaction that will settle these results and plan these deliveries.

        For a transaction that does both: two that took their locks step by step could deadlock.
        """
        self._locked = True
        # On SQLite the transaction holds the whole file from its first statement.
        if self._connection.dialect.name == "postgresql":
            self._take_locks(results, plans)

    def _take_locks(self, results: Sequence[RunResult], plans: Sequence[RunPlan]) -> None:
        if any(run_plan.options for run_plan in plans):
            locks.lock_order(self._connection)
        elif results:
            locks.lock_order(self._connection, in_values(run.c.id, [result.run_id for result in results]))
        delivery_ids = {each.delivery_id for each in results} | {each.delivery_id for each in plans}
        if results or len(delivery_ids) > 1:  # a plan alone locks its delivery itself
            locks.lock_deliveries(self._connection, delivery_ids)

    def settle(self, results: Sequence[RunResult], clock: Callable[[], datetime] | None = None) -> set[Lease]:
        """Write run results; returns the leases that were still held. See billhook.inbox.settling."""
        if not results:
            return set()
        self.steps.append("settle")
        if not self._locked:
            self._take_locks(results, ())
        settled, released = settle(self._connection, results, clock)
        self._released += released
        if self._limits:
            self._settled_names |= self._limits.keys() & {handler for _, handler in settled}
            self._limited_results += [
                (handler, None if result.state is RunState.SUCCEEDED else result.error)
                for result, handler in settled
                # Neither a failure nor a success: an interruption, and a run discarded, perhaps uncalled.
                if handler in self._limits and not result.excused and result.state is not RunState.DISCARDED
            ]
        return {result.lease for result, _ in settled}

    def plan(
        self,
        plans: Sequence[RunPlan],
        now: datetime,
        claimable: Mapping[int, StoredDelivery] = _NONE,
    ) -> list[int]:
        """Insert the runs of received deliveries; returns the delivery ids that were still unplanned.

        The runs of those that are `claimable` are inserted by the `claim` that follows, running as far as it
        has room behind what was due before. Their handlers must have no limits, and their plans no options.
        """
        if not plans:
            return []
        self.steps.append("plan")
        if not self._locked:
            self._take_locks((), plans)
        planned = plan(self._connection, plans, now, claimable)
        self._claimable_plans += planned.claimable_plans
        self._planned_at = now
        self.duplicates += planned.duplicates
        self._released += planned.released
        return planned.planned_here

    def apply_limits(self, now: datetime, *, release_due: bool = False) -> None:
        """Pause handlers that fail, and release held runs. After `settle` and `plan`, before `claim`.

        With `release_due`, also those of handlers of which no run was settled: their time may have come.
        """
        if self._limited_results:
            self._limiter.record_results(self._limited_results, now)
        self._limiter.release(self._settled_names, now, release_due=release_due)

    def finish(self) -> None:
        """Make runs due that were planned and not claimed."""
        if self._planned_at is not None:
            self._insert_planned([], self._planned_at, self._planned_at)

    @property
    def released(self) -> list[int]:
        """The deliveries of which a run became due, so that a worker should be notified."""
        return self._released + self._limiter.released

    @property
    def paused(self) -> list[PausedHandler]:
        """The handlers that were paused, because they failed too often in a row."""
        return self._limiter.paused

    @property
    def held(self) -> bool:
        """Whether a claim held runs: there may be more due runs than it has seen."""
        return self._limiter.held

    def next_times(self, only: int | None = None) -> NextTimes:
        """Return when the next run may be claimed, the next suspect, and when held runs may be released.

        The runs are those of one delivery if `only` names it.
        """
        return next_times(self._connection, only)

    # --- claim ----------------------------------------------------------------------------------------

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
        query = _due_runs(of_one=only is not None, suspects=suspects)
        found: list[Any] = []
        rows = found
        # A delivery that was planned just now has no runs yet.
        for _ in range(0 if only is not None and self._claimable_plans else _TRIES):
            found = self._lock_rows(query, limit, now, only)
            # A row that is running and due has an expired lease. What to do with it is decided run by run,
            # and some are due later then; so all are expired first, and the due ones read again.
            while any(row.state == RunState.RUNNING for row in found):
                leases.expire_leases(self._connection, now, only=only, spread=spread)
                found = self._lock_rows(query, limit, now, only)
            rows = self._admit(found, now, idle)
            if len(rows) == len(found):  # else read again: behind those that are held now are others
                break
        starting = rows if idle is None else rows[:idle]
        # A run that was lost in a queue starts at once or stays due: only a started run can be found out.
        queued = list(takewhile(lambda row: row.lease_owner != LOST_IN_QUEUE, rows[len(starting) :]))
        claims = self._mark_running(starting, self._owner, now, leased_until) if starting else []
        if queued:
            claims += self._mark_running(queued, self._owner + QUEUED, now, leased_until)
        if self._limits:
            self._limiter.record_started(claims, now)
        if self._claimable_plans:
            # New runs come after runs that were already due; if those did not all fit, claim no new ones.
            room = limit - len(found) if len(starting) + len(queued) == len(rows) else 0
            at_once = room if idle is None else max(0, min(room, idle - len(rows)))
            owners = [self._owner] * at_once + [self._owner + QUEUED] * (room - at_once)
            claims += self._insert_planned(owners, now, leased_until)
        if claims:
            self.steps.append("claim")
        return claims

    def _insert_planned(self, owners: Sequence[str], now: datetime, leased_until: datetime) -> list[Claim]:
        """Insert the runs that `plan` left: one claimed for each of these lease owners, the others due."""
        token = secrets.randbits(30)
        runs = [
            (stored, handler) for planned, stored in self._claimable_plans for handler in planned.handlers
        ]
        self._claimable_plans = []
        rows = []
        for (stored, handler), owner in zip_longest(runs, owners[: len(runs)]):
            row: dict[str, Any] = {
                "delivery_id": stored.delivery_id,
                "handler": handler,
                "state": RunState.DUE.value,
                "attempts": 0,
                "due_at": now,
                "token": token,
                "lease_owner": owner,
                "started_at": None,
            }
            if owner is not None:
                started = {"attempts": 1, "due_at": leased_until, "started_at": now}
                row |= {"state": RunState.RUNNING.value, **started}
            rows.append(row)
        run_ids = insert_and_find(self._connection, run, rows, ("delivery_id", "handler"))
        return [
            Claim(run_ids[stored.delivery_id, handler], token, handler, 1, leased_until, stored)
            for stored, handler in runs[: len(owners)]
        ]

    def claim_suspect(self, now: datetime, leased_until: datetime, only: int | None = None) -> Claim | None:
        """Claim one due suspect, to be run beside nothing else.

        First those with the fewest attempts that count; those that were lost beside other runs come last.
        """
        rows = self._lock_rows(_due_suspects(of_one=only is not None), 1, now, only)
        rows = self._admit(rows, now, None)
        if not rows:
            return None
        self.steps.append("claim")
        claims = self._mark_running(rows, self._owner, now, leased_until)
        if self._limits:
            self._limiter.record_started(claims, now)
        return claims[0]

    def _admit(self, rows: list[Any], now: datetime, idle: int | None) -> list[Any]:
        """Return the due runs that may start. Without limits and pauses, as mostly, that is all of them."""
        if rows and (self._limits or rows[0].paused):
            return self._limiter.admit(rows, now, idle)
        return rows

    def _lock_rows(self, query: Select[Any], limit: int, now: datetime, delivery_id: int | None) -> list[Any]:
        values = {"now": now, "at_most": limit, "of_delivery": delivery_id}
        # Sorted here: the database would move the bodies about to sort the rows.
        return sorted(self._connection.execute(query, values).all(), key=lambda row: (row.due_at, row.run_id))

    def _mark_running(
        self, rows: Sequence[Any], owner: str, now: datetime, leased_until: datetime
    ) -> list[Claim]:
        run_ids = [row.run_id for row in rows]
        values = {"run_ids": run_ids, "now": now, "leased_until": leased_until, "owner": owner}
        self._connection.execute(_START, values)
        return [
            Claim(
                row.run_id,
                row.token + 1,
                row.handler,
                row.attempts + 1,
                leased_until,
                StoredDelivery(*row[len(_CLAIMED) : -1]),
                row.excused_attempts,
                row.runs_alone == 1,
                row.replays,
            )
            for row in rows
        ]

    # --- held leases ----------------------------------------------------------------------------------

    def mark_not_alone(self, held: Sequence[Lease]) -> None:
        """Mark running suspects as not alone any more: other runs are started beside them."""
        leases.mark_not_alone(self._connection, held)

    def renew(self, held: Sequence[Lease], leased_until: datetime) -> set[Lease]:
        """Extend leases; returns those that are still held."""
        return leases.renew(self._connection, held, leased_until) if held else set()

    def release(self, held: Sequence[Lease], now: datetime) -> None:
        """Release claimed runs that were never called: due at once, their attempt not counted."""
        if held:
            leases.release(self._connection, held, now)

    def release_orphaned(self, held: Sequence[Lease], now: datetime) -> int:
        """Release this owner's claims beside `held`; returns how many there were.

        They come from a transaction whose COMMIT succeeded while its reply was lost: the worker took it for
        failed, so nothing called these runs. Only for an owner whose name is unique to one worker and is no
        prefix of another's.
        """
        return leases.release_orphaned(self._connection, self._owner, held, now)


@cache
def _due_runs(*, of_one: bool, suspects: bool) -> Select[Any]:
    """Build the statement that locks due runs and reads them, of one delivery or of all."""
    query = select(*_CLAIMED).where(CLAIMABLE, run.c.due_at <= _NOW)
    if not suspects:
        query = query.where(NOT_SUSPECT)
    return _locking(query.order_by(run.c.due_at, run.c.id), of_one)


@cache
def _due_suspects(*, of_one: bool) -> Select[Any]:
    not_alone = case((run.c.lease_owner == LOST_NOT_ALONE, 1), else_=0)
    order = (not_alone, run.c.attempts - run.c.excused_attempts, run.c.due_at, run.c.id)
    return _locking(select(*_CLAIMED).where(SUSPECT, run.c.due_at <= _NOW).order_by(*order), of_one)


def _locking(query: Select[Any], of_one: bool) -> Select[Any]:
    """Lock a few runs by the index alone, then read their deliveries: no body is read for a skipped row.

    Rows that another worker is claiming are skipped, not waited for.
    """
    if of_one:
        query = query.where(run.c.delivery_id == bindparam("of_delivery", type_=BigInteger))
    few = query.limit(bindparam("at_most", type_=Integer)).with_for_update(skip_locked=True).cte("few")
    columns = (*STORED_COLUMNS, PAUSED_COUNT.label("paused"))
    return select(few, *columns).join(delivery, delivery.c.id == few.c.delivery_id)
