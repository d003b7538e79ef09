"""One write transaction of an engine: settle, plan and claim together cost one fsync."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Integer, Text, and_, bindparam, func, select, update

from billhook.inbox.counting.counts import count_quarantined_again, count_read_late
from billhook.inbox.running import claims, due, handler_lists, leases, readings
from billhook.inbox.running.claims import CLAIMED_COLUMNS
from billhook.inbox.running.due import NextTimes
from billhook.inbox.running.handler_lists import ListNote
from billhook.inbox.running.leases import HELD, LEASE, NOT_CLAIMED, lease_parameters, lease_texts
from billhook.inbox.running.limits import Limiter
from billhook.inbox.running.ordering import release_next
from billhook.inbox.running.planning import make_runs, write_plans
from billhook.inbox.running.runs import insert_runs, settle
from billhook.inbox.tables.dialect import dialect_of
from billhook.inbox.tables.records import (
    Claim,
    HandlerLimits,
    Lease,
    PausedHandler,
    RunPlan,
    RunResult,
    StoredDelivery,
    UncalledRun,
)
from billhook.inbox.tables.schema import RUNNING_RUN, UNREAD, delivery, run
from billhook.inbox.tables.sql import UtcDateTime, in_parameter, in_values
from billhook.inbox.tables.states import RunState

NO_LIMITS: Mapping[str, HandlerLimits] = MappingProxyType({})
CLAIM_HANDLERS = 8
"""How many handlers a claim takes runs of, those that wait longest first: each costs a look-up."""
MOST_CLAIM_HANDLERS = 32
"""How many, if further handlers became due at the same moment as the last of these."""


def every_name(name: str) -> bool:
    """Return True: runs stored under any name may be claimed."""
    return True


_START = (
    update(run)
    .where(in_parameter(run.c.id, "run_ids"))
    .values(
        state=RunState.RUNNING.value,
        attempts=run.c.attempts + 1,
        # The fencing token: from here on, the result of an earlier attempt matches no run.
        token=run.c.token + 1,
        due_at=bindparam("leased_until", type_=UtcDateTime),
        not_before=None,
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
    process: runs of these are neither expired nor claimed, unless they are settled here. `known_types` are
    those that deliveries are counted by: see Inbox.

    `duplicates` are the runs that were planned and discarded at once, `superseded` those that were discarded
    for a newer one; `released` the deliveries of which a run became due because the run before it in its
    order finished, or may start because a run of its handler did; `paused` the handlers that failed too often
    in a row; `steps` what it did, for failpoints. A claim looks at `due_names`, of which a run may have
    become due, and makes the runs that are `left_to_claim`. The caller sets what there is to `note`.
    """

    connection: Connection
    owner: str
    limits: Mapping[str, HandlerLimits] = field(default_factory=dict)
    held: Set[Lease] = frozenset()
    release_id: int | None = None
    known_types: Collection[str] | None = None

    def __post_init__(self) -> None:
        self.next_times: Callable[..., NextTimes] = partial(due.next_times, self.connection, self.limits)
        """Return when the next runs may be claimed, of one delivery if its id is given."""
        self._claimer = {"worker": self.owner, "release_id": self.release_id}
        self._settling: set[Lease] = set()
        self._names = {name: each.names for name, each in self.limits.items() if len(each.names) > 1}
        self._limiter = Limiter(self.connection, self.limits) if self.limits else None
        self._settled_names: set[str] = set()
        self.due_names: set[str] = set()
        self._settled_at: datetime | None = None
        self._locked = False
        self.left_to_claim: list[tuple[StoredDelivery, str]] = []
        self._planned_at: datetime | None = None
        self.note: ListNote | None = None
        self.steps: list[str] = []
        self.duplicates: list[UncalledRun] = []
        self.superseded: list[UncalledRun] = []
        self.released: list[int] = []
        self.paused: list[PausedHandler] = [] if self._limiter is None else self._limiter.paused

    def lock(
        self, results: Sequence[RunResult], plans: Sequence[RunPlan], *, more_later: bool = False
    ) -> None:
        """Take the locks for settling these results and planning these deliveries.

        Call it first in a transaction that does both: two that took their locks step by step could deadlock.
        With `more_later`, more will be settled or planned in it, and locked then.
        """
        self._locked = not more_later
        dialect_of(self.connection).lock_work(self.connection, results, plans)

    def settle(self, results: Sequence[RunResult], clock: Callable[[], datetime] | None = None) -> set[Lease]:
        """Write run results; returns the leases that were still held. See billhook.inbox.running.runs."""
        if not results:
            return set()
        self.steps.append("settle")
        self._settling.update(result.lease for result in results)
        if not self._locked:
            self.lock(results, (), more_later=True)
        settled, released, superseded = settle(self.connection, results, self._claimer, clock, self._names)
        self.released += released
        self.superseded += superseded
        handlers = {handler for _, handler in settled}
        self._settled_names |= self.limits.keys() & handlers
        # Of runs that are to be tried again, that are the next in an order, or that may start now.
        again = {handler for result, handler in settled if result.state is RunState.DUE}
        self.due_names |= (handlers if released else again) | self._settled_names
        if released and self._names:
            self.due_names.update(*(self._names.get(name, ()) for name in handlers))
        if self._limiter is not None:
            # In the order in which they ended, not that of locks: failures are counted in a row.
            places = {result.lease: place for place, result in enumerate(results)}
            settled.sort(key=lambda each: places[each[0].lease])
            self._limiter.results += [
                (handler, None if result.state is RunState.SUCCEEDED else result.error)
                for result, handler in settled
                # Neither a failure nor a success: an interruption, and a run discarded.
                if handler in self.limits and not result.uncounted and result.state is not RunState.DISCARDED
            ]
        self._settled_at = max(result.at for result in results)
        return {result.lease for result, _ in settled}

    def plan(self, plans: Sequence[RunPlan], now: datetime, *, was_planned: bool = False) -> list[int]:
        """Insert the runs of received deliveries; returns the delivery ids that were still unplanned.

        If it `was_planned` they are being read, and planned once more.

        The runs of plans that are `claimable` are inserted by the `claim` that follows, running as far as it
        has capacity behind what was due before.
        """
        if not plans:
            return []
        self.steps.append("plan")
        if not self._locked:
            self.lock((), plans, more_later=True)
        # Of those that no other worker has planned; None with a paused handler.
        keys = write_plans(self.connection, plans, was_planned=was_planned)
        quarantined = [each.delivery_id for each in plans if each.error is not None]
        if quarantined:
            count_quarantined_again(self.connection, keys.keys() & quarantined, self.known_types)
        read_here = [each.delivery_id for each in plans if each.event_type]
        if read_here:
            count_read_late(self.connection, keys.keys() & read_here, self.known_types)
        making: list[RunPlan] = []
        mine = [planned for planned in plans if planned.delivery_id in keys]
        for planned in mine:
            stored = planned.claimable
            # Another key: the file was replaced since the delivery was read.
            if stored is not None and stored.key == keys[stored.delivery_id]:
                self.left_to_claim += [(stored, handler) for handler in planned.handlers]
            else:
                making.append(planned)
        if making:
            duplicates, released, superseded = make_runs(self.connection, making, now)
            self.duplicates += duplicates
            self.superseded += superseded
            self.released += sorted(set(released) - keys.keys())
        left = {stored.delivery_id for stored, _ in self.left_to_claim}
        others = [planned.handlers for planned in plans if planned.delivery_id not in left]
        self.due_names.update(*others)
        if self._names:
            self.due_names.update(*(self._names.get(name, ()) for names in others for name in names))
        self._planned_at = now
        return [planned.delivery_id for planned in mine]

    def end_readings(
        self, plans: Mapping[Lease, RunPlan], alone: Collection[Lease], now: datetime
    ) -> tuple[set[Lease], list[int]]:
        """Write the plans that readings have made, in the place of their runs; `plans` are by their leases.

        Returns the leases that were still held, and the deliveries that are planned. Readings in `alone` are
        to be repeated while nothing else is read, and are marked so.
        """
        if alone:
            readings.mark_alone(self.connection, alone)
        if not plans:
            return set(), []
        self.steps.append("read")
        self._settling.update(plans)
        held, keys = readings.end_readings(self.connection, plans)
        planned = self.plan([plan for lease, plan in plans.items() if lease in held], now, was_planned=True)
        self.released += release_next(self.connection, keys, now)
        self.due_names.update(key.handler for key in keys)
        return held, planned

    def finish(self) -> None:
        """Make runs due that were planned and not claimed; find what may start now."""
        if self._planned_at is not None:
            self._insert_planned(0, 0, self._planned_at, self._planned_at, every_name)
        if self._limiter is not None and self._settled_at is not None:
            self._limiter.count_failures(self._settled_at)
            self.released += self._limiter.startable(self._settled_names, self._settled_at)
        if self.note is not None:  # last: nothing is locked any more that waits for these rows
            number, now, missed = self.note
            for newer, of_it in sorted(missed.items()):
                handler_lists.record_lacking(self.connection, newer, of_it, now)
            if number is not None:
                handler_lists.note_planned(self.connection, number, now)

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
        which: Callable[[str], bool] = every_name,
        may_call: Callable[[str, str], bool] | None = None,
        most: Callable[[str], int] | None = None,
    ) -> list[Claim]:
        """Claim up to `limit` due runs, of one delivery if `only` names it; their attempt counts from now.

        Divide `limit` evenly among the handlers that have due runs, up to each one's capacity. The first
        `idle` runs (default: all) start at once. The others are marked as queued: if their worker dies, that
        does not count as an attempt. Without `suspects`, suspects are left for `claim_suspect`; those whose
        lease has ended become due within `spread`. `times` are what the caller has read before this
        transaction. `which` says whether the caller may claim runs that are stored under a name, `may_call`
        whether it may for an event type, and `most` how many of each name.
        """
        times, which = times or self.next_times(only), cache(which)  # asked of few names, for each run
        if times.lease_ends_at is not None and times.lease_ends_at <= now:
            held = [*self.held]
            self.due_names |= leases.expire_leases(self.connection, now, only=only, spread=spread, held=held)
        if self._limiter is not None:
            self._limiter.count_failures(now)
        names_due = [*filter(which, times.names_due(now))]
        few = names_due[:CLAIM_HANDLERS]
        if few:
            # Those that became due at one moment may be of one delivery: its runs are claimed in their order.
            last, others = times.due[few[-1]], names_due[len(few) : MOST_CLAIM_HANDLERS]
            few += takewhile(lambda name: times.due[name] == last, others)
        names = self.due_names.union(few)
        if suspects:
            names.update(times.suspects)
        names = set(filter(which, names))
        rows: list[Any] = []
        claimed: list[Claim] = []
        capacity = limit
        # A delivery that was planned just now has no runs yet.
        if names and not (only is not None and self.left_to_claim):
            capacities = self._capacities(names, max(1, limit // len(names)), now, idle)
            if most is not None:
                capacities = {name: min(number, most(name)) for name, number in capacities.items()}
            # Not what a worker of this process has under way, although its lease has expired.
            late = self.held - self._settling
            rows = found = claims.find_due(
                *(self.connection, capacities, now, only, late),
                suspects=suspects,
                may_call=may_call,
                due_from=times.due_from,
            )
            if self._limiter is not None:
                rows = self._limiter.admit(found, idle)
            rows = rows[:limit]
            taken = Counter(row.handler for row in found)
            # New runs come after runs that were already due; if those did not all fit, claim no new ones.
            left = any(0 < capacities[name] <= taken[name] for name in capacities) or len(names_due) > len(
                few
            )
            capacity = 0 if left else limit - len(rows)
            starting = rows if idle is None else rows[:idle]
            # A run that was lost in a queue starts at once or stays due: only a started run can be found out.
            queued = list(takewhile(lambda row: not row.queued, rows[len(starting) :]))
            claimed += self._mark_running(starting, now, leased_until)
            claimed += self._mark_running(queued, now, leased_until, is_queued=True)
        if self.left_to_claim:
            capacity = capacity if len(claimed) == len(rows) else 0
            at_once = capacity if idle is None else max(0, min(capacity, idle - len(rows)))
            claimed += self._insert_planned(capacity, at_once, now, leased_until, which, most)
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
                Lease(row.run_id, row.token + 1),
                row.handler,
                row.attempts + 1,
                leased_until,
                StoredDelivery(*row[len(CLAIMED_COLUMNS) :]),
                row.uncounted_attempts,
                row.runs_alone == 1,
                row.replays,
                row.order_key is not None,
                row.postponements,
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
        self,
        number: int,
        at_once: int,
        now: datetime,
        leased_until: datetime,
        which: Callable[[str], bool],
        most: Callable[[str], int] | None = None,
    ) -> list[Claim]:
        """Insert the runs of these names that `plan` left: the first `number` as claimed, the others as due.

        At most `most(name)` of each name are claimed. The first `at_once` of the claimed ones start at once;
        the others wait in the worker's queue.
        """
        token = secrets.randbits(30)
        left, runs, behind = self.left_to_claim, [], []
        self.left_to_claim = []
        number_of = Counter[str]()
        for one in left:
            if not which(one[1]):
                self.left_to_claim.append(one)
            elif most is not None and number_of[one[1]] >= most(one[1]):
                behind.append(one)
            else:
                number_of[one[1]] += 1
                runs.append(one)
        number = min(number, len(runs))
        runs += behind
        claimed = [
            {"delivery_id": stored.delivery_id, "handler": handler, "queued": int(index >= at_once)}
            for index, (stored, handler) in enumerate(runs[:number])
        ]
        started = {"state": RunState.RUNNING.value, "token": token, "attempts": 1, "started_at": now}
        started |= {"due_at": leased_until, **self._claimer}
        run_ids = insert_runs(self.connection, claimed, started)
        waiting = [
            {"delivery_id": stored.delivery_id, "handler": handler} for stored, handler in runs[number:]
        ]
        insert_runs(self.connection, waiting, {"state": RunState.DUE.value, "token": token, "due_at": now})
        return [
            Claim(Lease(run_ids[stored.delivery_id, handler], token), handler, 1, leased_until, stored)
            for stored, handler in runs[:number]
        ]

    def claim_suspect(
        self,
        now: datetime,
        leased_until: datetime,
        only: int | None = None,
        times: NextTimes | None = None,
        which: Callable[[str], bool] = every_name,
        may_call: Callable[[str, str], bool] | None = None,
    ) -> Claim | None:
        """Claim one due suspect, of a handler that the caller may claim: it is run while nothing else is.

        First those with the fewest attempts that count; those that were lost beside other runs come last.
        """
        if self._limiter is not None:
            self._limiter.count_failures(now)
        times = times or self.next_times(only)
        capacities = self._capacities([*filter(which, times.suspects)], 1, now, None)
        held = self.held - self._settling
        rows = claims.find_suspect(self.connection, capacities, now, only, held)
        while rows and may_call is not None and not may_call(rows[0].handler, rows[0].event_type):
            held = held | {Lease(rows[0].run_id, rows[0].token)}  # another process has it: the next one
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
