"""One write transaction of an engine: settle, plan and claim together cost one fsync."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Text, Update, and_, bindparam, func, select, update
from sqlalchemy.types import TypeEngine

from billhook.inbox import claims, due, leases
from billhook.inbox.claims import CLAIMED_COLUMNS
from billhook.inbox.dialect import InboxDialect, dialect_of
from billhook.inbox.due import NextTimes
from billhook.inbox.leases import HELD, LEASE, NOT_CLAIMED, lease_parameters, lease_texts
from billhook.inbox.limits import PAUSED_COUNT, Limiter
from billhook.inbox.planning import make_runs
from billhook.inbox.records import (
    Claim,
    HandlerLimits,
    Lease,
    PausedHandler,
    RunPlan,
    RunResult,
    StoredDelivery,
    UncalledRun,
)
from billhook.inbox.runs import insert_runs, new_run, settle
from billhook.inbox.schema import IDENTIFIERS, RUNNING_RUN, UNREAD, delivery, run
from billhook.inbox.sql import UtcDateTime, in_parameter, in_values
from billhook.inbox.states import DeliveryState, RunState

NO_LIMITS: Mapping[str, HandlerLimits] = MappingProxyType({})
CLAIM_HANDLERS = 8
"""Of how many handlers runs are claimed at once, of the longest waiting first: each costs a look-up."""
_START = (
    update(run)
    .where(in_parameter(run.c.id, "run_ids"))
    .values(
        state=RunState.RUNNING.value,
        attempts=run.c.attempts + 1,
        # The fencing token: from here on, the result of an earlier attempt matches no run.
        token=run.c.token + 1,
        due_at=bindparam("leased_until", type_=UtcDateTime),
        worker=bindparam("worker", type_=Text),
        release_id=bindparam("release_id", type_=Integer),
        queued=bindparam("is_queued", type_=Integer),
        beside_others=0,
        started_at=bindparam("now", type_=UtcDateTime),
        duration_seconds=None,
    )
)
_RELEASED: dict[str, Any] = {
    "state": RunState.DUE.value,
    "due_at": bindparam("now", type_=UtcDateTime),
    "attempts": run.c.attempts - 1,
    **NOT_CLAIMED,
}
_IDENTIFIERS = tuple(column.name for column in IDENTIFIERS)
_PLANNED: dict[str, TypeEngine[Any]] = {
    "delivery_id": BigInteger(),
    "new_state": Text(),
    "reason": Text(),
    "event_type": Text(),
    **dict.fromkeys(_IDENTIFIERS, Text()),
}


@cache
def _plan_statement(own: InboxDialect, *, reads_types: bool) -> Update:
    """Build the update for rows with the columns of _PLANNED; `reads_types` if types were read in bodies.

    Without it no type is written: SQLite would write the entry of its index anew, with the same type.
    """
    planned = own.rows("plans", _PLANNED)
    read: dict[str, Any] = {}
    if reads_types:
        read = {"event_type": func.coalesce(planned.c.event_type, delivery.c.event_type)}
    return (
        update(delivery)
        # The state decides between two workers that read the same delivery: one of them plans it.
        .where(delivery.c.id == planned.c.delivery_id, UNREAD)
        .values(
            state=planned.c.new_state,
            error=planned.c.reason,
            **read,
            **{name: planned.c[name] for name in _IDENTIFIERS},
        )
        .returning(delivery.c.id, delivery.c.key, PAUSED_COUNT)
    )


def count_skipped(connection: Connection, unplanned: Collection[int], unsettled: Collection[Lease]) -> int:
    """Count the deliveries that are still unread, and the runs of which the lease still holds."""
    unread = select(func.count()).select_from(delivery)
    unread = unread.where(in_values(delivery.c.id, list(unplanned)), UNREAD)
    held = select(func.count()).select_from(run).where(HELD)
    deliveries: int = connection.execute(unread).scalar_one()
    runs: int = connection.execute(held, lease_parameters(unsettled)).scalar_one()
    return deliveries + runs


@dataclass(eq=False, repr=False)
class InboxTransaction:
    """What an engine does to the inbox in one transaction, with leases in the name of `owner`.

    `release_id` is the number of the release that this process was started with. `limits` are those of
    handlers, by the names that their runs are stored under. `held` are the leases of all workers of this
    process: runs of these are neither expired nor claimed, unless they are settled here.

    `duplicates` are the runs that were planned and discarded at once, `superseded` those that were discarded
    for a newer one; `released` the deliveries of which a run became due because the run before it in its
    order finished, or may start because a run of its handler did; `paused` the handlers that failed too often
    in a row; `steps` what it did, for failpoints.
    """

    connection: Connection
    owner: str
    limits: Mapping[str, HandlerLimits] = field(default_factory=dict)
    held: Set[Lease] = frozenset()
    release_id: int | None = None

    def __post_init__(self) -> None:
        self._claimer = {"worker": self.owner, "release_id": self.release_id}
        self._settling: set[Lease] = set()
        self._limiter = Limiter(self.connection, self.limits) if self.limits else None
        # Of which a run was settled, and of which one may have become due: the claim looks at these too.
        self._settled_names: set[str] = set()
        self._due_names: set[str] = set()
        self._settled_at: datetime | None = None
        self._locked = False
        self._left_to_claim: list[tuple[StoredDelivery, str]] = []
        self._planned_at: datetime | None = None
        self.steps: list[str] = []
        self.duplicates: list[UncalledRun] = []
        self.superseded: list[UncalledRun] = []
        self.released: list[int] = []
        self.paused: list[PausedHandler] = [] if self._limiter is None else self._limiter.paused

    def lock(self, results: Sequence[RunResult], plans: Sequence[RunPlan], *, whole: bool = True) -> None:
        """Take the locks for settling these results and planning these deliveries.

        Call it first in a transaction that does both: two that took their locks step by step could deadlock.
        Not `whole`: more will be settled or planned, and locked then.
        """
        self._locked = whole
        dialect_of(self.connection).lock_work(self.connection, results, plans)

    def settle(self, results: Sequence[RunResult], clock: Callable[[], datetime] | None = None) -> set[Lease]:
        """Write run results; returns the leases that were still held. See billhook.inbox.runs."""
        if not results:
            return set()
        self.steps.append("settle")
        self._settling.update(result.lease for result in results)
        if not self._locked:
            self.lock(results, (), whole=False)
        settled, released, superseded = settle(self.connection, results, self._claimer, clock)
        self.released += released
        self.superseded += superseded
        handlers = {handler for _, handler in settled}
        self._settled_names |= self.limits.keys() & handlers
        # Of runs that are to be tried again, that are the next in an order, or that may start now.
        again = {handler for result, handler in settled if result.state is RunState.DUE}
        self._due_names |= (handlers if released else again) | self._settled_names
        if self._limiter is not None:
            self._limiter.results += [
                (handler, None if result.state is RunState.SUCCEEDED else result.error)
                for result, handler in settled
                # Neither a failure nor a success: an interruption, and a run discarded.
                if handler in self.limits and not result.uncounted and result.state is not RunState.DISCARDED
            ]
        self._settled_at = max(result.at for result in results)
        return {result.lease for result, _ in settled}

    def plan(self, plans: Sequence[RunPlan], now: datetime) -> list[int]:
        """Insert the runs of received deliveries; returns the delivery ids that were still unplanned.

        The runs of plans that are `claimable` are inserted by the `claim` that follows, running as far as it
        has capacity behind what was due before.
        """
        if not plans:
            return []
        self.steps.append("plan")
        if not self._locked:
            self.lock((), plans, whole=False)
        rows, reads_types = [], False
        for planned in plans:
            state = DeliveryState.PLANNED if planned.handlers else DeliveryState.DONE
            if planned.error is not None:
                state = DeliveryState.QUARANTINED
            row = {"delivery_id": planned.delivery_id, "new_state": state.value, "reason": planned.error}
            if planned.event_type is not None:
                reads_types, row["event_type"] = True, planned.event_type
            rows.append(row | dict(zip(_IDENTIFIERS, planned.identifiers, strict=False)))
        statement = _plan_statement(dialect_of(self.connection), reads_types=reads_types)
        new = self.connection.execute(statement, {"plans": json.dumps(rows)})
        # Of those that no other worker has planned; None with a paused handler.
        keys = {delivery_id: None if paused else key for delivery_id, key, paused in new}
        making: list[RunPlan] = []
        mine = [planned for planned in plans if planned.delivery_id in keys]
        for planned in mine:
            stored = planned.claimable
            # Another key: the file was replaced since the delivery was read.
            if stored is not None and stored.key == keys[stored.delivery_id]:
                self._left_to_claim += [(stored, handler) for handler in planned.handlers]
            else:
                making.append(planned)
        if making:
            duplicates, released, superseded = make_runs(self.connection, making, now)
            self.duplicates += duplicates
            self.superseded += superseded
            self.released += sorted(set(released) - keys.keys())
        left = {stored.delivery_id for stored, _ in self._left_to_claim}
        others = [planned.handlers for planned in plans if planned.delivery_id not in left]
        self._due_names.update(*others)
        self._planned_at = now
        return [planned.delivery_id for planned in mine]

    def finish(self) -> None:
        """Make runs due that were planned and not claimed; find what may start now."""
        if self._planned_at is not None:
            self._insert_planned(0, 0, self._planned_at, self._planned_at)
        if self._limiter is not None and self._settled_at is not None:
            self._limiter.count_failures(self._settled_at)
            self.released += self._limiter.startable(self._settled_names, self._settled_at)

    def next_times(self, only: int | None = None) -> NextTimes:
        """Return when the next runs may be claimed, of one delivery if `only` names it."""
        return due.next_times(self.connection, self.limits, only)

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
        times: NextTimes | None = None,
    ) -> list[Claim]:
        """Claim up to `limit` due runs, of one delivery if `only` names it; their attempt counts from now.

        Of each handler with due runs a like number, as far as it has capacity. The first `idle` of them
        (default: all) start at once. The others are marked as queued: if their worker dies, that is no
        attempt of theirs. Without `suspects`, suspects are left for `claim_suspect`; those whose lease has
        ended become due within `spread`. `times` are what the caller has read before this transaction.
        """
        times = times or self.next_times(only)
        if times.lease_ends_at is not None and times.lease_ends_at <= now:
            held = [*self.held]
            self._due_names |= leases.expire_leases(self.connection, now, only=only, spread=spread, held=held)
        if self._limiter is not None:
            self._limiter.count_failures(now)
        names_due = times.names_due(now)
        names = self._due_names.union(names_due[:CLAIM_HANDLERS])
        if suspects:
            names.update(times.suspects)
        rows: list[Any] = []
        capacity = limit
        # A delivery that was planned just now has no runs yet.
        if names and not (only is not None and self._left_to_claim):
            capacities = self._capacities(names, max(1, limit // len(names)), now, idle)
            found = claims.find_due(self.connection, capacities, now, only, suspects=suspects)
            # Not what a worker of this process has under way, although its lease has expired.
            rows = found = [
                row
                for row in found
                if (lease := (row.run_id, row.token)) not in self.held or lease in self._settling
            ]
            if self._limiter is not None:
                rows = self._limiter.admit(found, idle)
            rows = rows[:limit]
            taken = Counter(row.handler for row in found)
            # New runs come after runs that were already due; if those did not all fit, claim no new ones.
            left = (
                any(0 < capacities[name] <= taken[name] for name in capacities)
                or len(names_due) > CLAIM_HANDLERS
            )
            capacity = 0 if left else limit - len(rows)
        starting = rows if idle is None else rows[:idle]
        # A run that was lost in a queue starts at once or stays due: only a started run can be found out.
        queued = list(takewhile(lambda row: not row.queued, rows[len(starting) :]))
        claimed = self._mark_running(starting, now, leased_until)
        claimed += self._mark_running(queued, now, leased_until, is_queued=True)
        if self._left_to_claim:
            capacity = capacity if len(claimed) == len(rows) else 0
            at_once = capacity if idle is None else max(0, min(capacity, idle - len(rows)))
            claimed += self._insert_planned(capacity, at_once, now, leased_until)
        if claimed:
            self.steps.append("claim")
        return claimed

    def _mark_running(
        self, rows: Sequence[Any], now: datetime, leased_until: datetime, *, is_queued: bool = False
    ) -> list[Claim]:
        """Claim the runs of these rows, which this transaction has locked."""
        if not rows:
            return []
        values = {"run_ids": [row.run_id for row in rows], "now": now, "leased_until": leased_until}
        self.connection.execute(_START, {**values, **self._claimer, "is_queued": int(is_queued)})
        claimed = [
            Claim(
                row.run_id,
                row.token + 1,
                row.handler,
                row.attempts + 1,
                leased_until,
                StoredDelivery(*row[len(CLAIMED_COLUMNS) :]),
                row.uncounted_attempts,
                row.runs_alone == 1,
                row.replays,
                row.order_key is not None,
            )
            for row in rows
        ]
        if self._limiter is not None:
            self._limiter.record_started(claimed, now)
        return claimed

    def _capacities(
        self, names: Collection[str], most: int, now: datetime, idle: int | None
    ) -> Mapping[str, int]:
        """Return how many runs of each handler may be claimed, `most` of each."""
        if self._limiter is None:
            return dict.fromkeys(names, most)
        return self._limiter.capacities(names, most, now, idle)

    def _insert_planned(
        self, number: int, at_once: int, now: datetime, leased_until: datetime
    ) -> list[Claim]:
        """Insert the runs that `plan` left: the first `number` claimed, `at_once` not queued; others due."""
        token = secrets.randbits(30)
        runs, self._left_to_claim = self._left_to_claim, []
        rows = []
        started: dict[str, Any] = {
            "state": RunState.RUNNING,
            "attempts": 1,
            "started_at": now,
            **self._claimer,
        }
        for index, (stored, handler) in enumerate(runs):
            if index < number:
                queued = int(index >= at_once)
                row = new_run(stored.delivery_id, handler, leased_until, token, queued=queued, **started)
            else:
                row = new_run(stored.delivery_id, handler, now, token)
            rows.append(row)
        run_ids = insert_runs(self.connection, rows)
        return [
            Claim(run_ids[stored.delivery_id, handler], token, handler, 1, leased_until, stored)
            for stored, handler in runs[:number]
        ]

    def claim_suspect(
        self,
        now: datetime,
        leased_until: datetime,
        only: int | None = None,
        times: NextTimes | None = None,
    ) -> Claim | None:
        """Claim one due suspect, to be run beside nothing else.

        First those with the fewest attempts that count; those that were lost beside other runs come last.
        """
        if self._limiter is not None:
            self._limiter.count_failures(now)
        times = times or self.next_times(only)
        capacities = self._capacities(times.suspects, 1, now, None)
        held = self.held - self._settling
        rows = claims.find_suspect(self.connection, capacities, now, only, held)
        for claim in self._mark_running(rows, now, leased_until):
            self.steps.append("claim")
            return claim
        return None

    def mark_not_alone(self, held: Sequence[Lease]) -> None:
        """Mark running suspects as not alone any more: other runs are started beside them."""
        alone = and_(run.c.runs_alone == 1, run.c.beside_others == 0)
        # Skipped, not waited for: a row that another transaction locks has its lease expired there, and that
        # transaction may wait for a lock of this one.
        query = select(run.c.id).where(HELD, alone).with_for_update(skip_locked=True)
        run_ids = list(self.connection.execute(query, lease_parameters(held)).scalars())
        marking = update(run).where(in_values(run.c.id, run_ids))
        self.connection.execute(marking.values(beside_others=1))

    def renew(self, held: Sequence[Lease], leased_until: datetime) -> set[Lease]:
        """Extend leases; returns those that are still held."""
        if not held:
            return set()
        # A lease that ran out is renewed too while no other worker has claimed the run: the token decides.
        extended = update(run).where(HELD).values(due_at=leased_until).returning(run.c.id, run.c.token)
        return set(map(Lease._make, self.connection.execute(extended, lease_parameters(held))))

    def release(self, held: Sequence[Lease], now: datetime) -> None:
        """Release claimed runs that were never called: due at once, their attempt not counted."""
        if held:
            releasing = update(run).where(HELD).values(_RELEASED)
            self.connection.execute(releasing, {**lease_parameters(held), "now": now})

    def release_orphaned(self, held: Sequence[Lease], now: datetime) -> int:
        """Release this owner's claims beside `held`; returns how many there were.

        They come from a transaction whose COMMIT succeeded while its reply was lost: the worker took it for
        failed, so nothing called these runs. Only for an owner whose name is unique to one worker.
        """
        orphaned = (
            update(run)
            .where(
                RUNNING_RUN,
                run.c.worker == self._claimer["worker"],
                ~in_parameter(LEASE, "leases"),
            )
            .values(_RELEASED)
        )
        return self.connection.execute(orphaned, {"leases": lease_texts(held), "now": now}).rowcount
