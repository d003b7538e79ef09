"""The cycle: settle results, plan deliveries and claim due runs, in one transaction. The way of every run.

An engine collects the attempts that have ended, reads what there is to do, and writes all of it at once. What
finishes and arrives while it commits makes up the next batch. `LeaseTable` knows the claims that it holds.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from billhook.concurrency import unique_process_name
from billhook.engines.dispatcher import AttemptResult, Dispatcher
from billhook.engines.handler_pool import ClaimedRun, HandlerPool
from billhook.engines.reporting import delivery_fields
from billhook.errors import BillhookError
from billhook.inbox import (
    NOTHING_DUE,
    Claim,
    Inbox,
    InboxTransaction,
    Lease,
    NextTimes,
    RoundRobin,
    RunPlan,
    StoredDelivery,
)
from billhook.logs import LimitedLog
from billhook.program import in_program

logger = logging.getLogger("billhook.engines")

PLAN_LIMIT = 200
FIRST_ROWS = 50
"""New deliveries that the first poll reads at most: how large they are is not known yet."""
PLAN_BYTES = 16 * 1024 * 1024
"""Bodies that a poll reads, by the size of those that the last one read. Parsed, a body takes several times
its size, and a process that is killed for its memory would read as much again after its start."""
UNSTORABLE_SECONDS = 1.0
SKIPS_SECONDS = 60.0
WINDOW_FACTOR = 128
"""Claims held per thread at most, while handlers return faster than the inbox commits."""
WINDOW_LIMIT = 2_000


class LeaseTable:
    """The claimed runs of one worker, by lease; few while handlers are slow, for others to claim."""

    def __init__(self, threads: int, lease_seconds: float, held: set[Lease]) -> None:
        """`held` are the leases of all workers of this process, among which the table keeps its own."""
        self._held = held
        self.runs: dict[Lease, ClaimedRun] = {}
        self.to_release: list[Lease] = []
        """Leases of runs that were claimed and not started, to be released in the next transaction."""
        self.window = threads
        """How many runs may be claimed at once."""
        self.finished_since_renewal = 0
        """Runs finished since the last renewal: an estimate of how many can start before the next one."""
        self._threads = threads
        self._third_seconds = lease_seconds / 3
        self._renew_at = 0.0
        self._orphan_checks = 0
        self._orphan_check_at = 0.0

    def capacity(self, settling: Iterable[Lease] = (), most: int | None = None) -> int:
        """Return how many more runs it may hold, once the results of `settling` are written.

        It may hold `most`; by default the window.
        """
        held = len(self.runs) - sum(lease in self.runs for lease in settling)
        return max(0, (self.window if most is None else most) - held)

    def idle_threads(self, settling: Iterable[Lease] = ()) -> int:
        """Return how many threads are free, once the results of `settling` are written."""
        return self.capacity(settling, self._threads)

    def add(self, run: ClaimedRun) -> None:
        """Hold a run whose claim is committed."""
        if not self.runs:
            # A third: two renewals may fail before a lease expires. One time for the whole table, counted
            # from its oldest claim, so that a renewal is one statement.
            self._renew_at = time.monotonic() + self._third_seconds
        self.runs[run.lease] = run
        self._held.add(run.lease)

    def remove(self, leases: Iterable[Lease]) -> None:
        """Forget leases that are settled or expired."""
        for lease in leases:
            if self.runs.pop(lease, None) is not None:
                self._held.discard(lease)
                self.finished_since_renewal += 1

    def release_later(self, runs: Iterable[ClaimedRun]) -> None:
        """Release runs that were not started in the next transaction, for other workers."""
        for run in runs:
            self.runs.pop(run.lease, None)
            self._held.discard(run.lease)
            self.to_release.append(run.lease)

    def abandon(self) -> None:
        """Leave what is still held to other workers, of this process too, once the leases have ended."""
        self._held.difference_update(self.runs)

    def record_commit(
        self,
        settled: Collection[Lease],
        renewed: Iterable[Lease] | None,
        leased_until: datetime,
        *,
        orphans_checked: bool,
    ) -> None:
        """Record a committed transaction: remove what it released, and the leases it `settled`.

        Also those that were lost, which this worker does not hold any more. `renewed` is None if the leases
        were not due for renewal. The window is doubled if more than a quarter of it finished since the last
        commit: handlers are quick.
        """
        self.to_release = []
        if orphans_checked:
            self._orphan_checks -= 1
            self._orphan_check_at = time.monotonic() + self._third_seconds
        if renewed is not None:
            for lease in renewed:  # one that is not among them was lost to another worker
                self.runs[lease].leased_until = leased_until
            self._renew_at = time.monotonic() + self._third_seconds
            self.finished_since_renewal = 0
        # A quarter, because it also holds what finishes and what starts while the next commit is under way.
        # At first in any case: with one queued run per thread, no thread waits for the next claim.
        elif len(settled) * 4 > self.window or (settled and self.window == self._threads):
            # Bounded: what one worker holds, no other can claim, and losing it costs its whole window.
            limit = max(self._threads, min(self._threads * WINDOW_FACTOR, WINDOW_LIMIT))
            self.window = min(self.window * 2, limit)
        self.remove(settled)

    def shrink_window(self) -> None:
        """Shrink the window to one claim per thread: a lease needed renewal, so handlers are slow."""
        self.window = self._threads

    def seconds_to_renewal(self) -> float | None:
        """Return the seconds until the next renewal, 0.0 if it is due; None if nothing is held."""
        return max(0.0, self._renew_at - time.monotonic()) if self.runs else None

    def mark_uncertain(self) -> None:
        """Schedule checks for orphaned claims after a failed transaction, whose COMMIT may yet succeed."""
        # Twice: a COMMIT may still be under way at the first check, and done by the second.
        self._orphan_checks, self._orphan_check_at = 2, 0.0

    @property
    def orphan_check_due(self) -> bool:
        """Whether to look for orphaned claims now: at once after a failure, and once more later."""
        return self._orphan_checks > 0 and time.monotonic() >= self._orphan_check_at


@dataclass(slots=True)
class Poll:
    """What one poll read and decided to write; the chapter of this package follows a poll through time."""

    now: datetime
    leased_until: datetime  # of the claims, and of the leases that are renewed
    next_times: NextTimes | None  # None: the claim reads what is due
    new_deliveries: list[StoredDelivery]  # to plan
    capacity: int  # how many runs may be claimed
    renewing: bool
    full: bool = False  # whether more deliveries may wait than it has read
    only: int | None = None  # the delivery of which runs may be claimed; None for all
    suspect: bool = False  # whether to claim a suspect, which runs alone, and no ordinary run
    with_suspects: bool = False  # whether suspects are claimed like ordinary runs
    spread: timedelta = timedelta(0)  # within which suspects become due whose lease has ended
    reads_next: bool = True  # whether to read when the next runs are due, if none is claimed
    not_alone: Set[Lease] = frozenset()  # suspects beside which the claimed runs start


class Cycle:
    """What every engine does with the inbox. For one thread, which `wake` wakes up when an attempt ends."""

    def __init__(
        self,
        inbox: Inbox,
        dispatcher: Dispatcher,
        *,
        threads: int,
        lease_seconds: float,
        wake: Callable[[], None],
        pool: type[HandlerPool] = HandlerPool,
    ) -> None:
        self._inbox = inbox
        self._dispatcher = dispatcher
        self._turns = RoundRobin(dispatcher.queue_of)
        self._rows_in_plan_bytes = FIRST_ROWS
        """How many deliveries as large as those of the last poll fit into PLAN_BYTES."""
        self._lease_time = timedelta(seconds=lease_seconds)
        self._owner = unique_process_name()
        self._leases = LeaseTable(threads, lease_seconds, inbox.held)
        self._unsettled: list[AttemptResult] = []
        self._unstorable: list[AttemptResult] = []
        self._unstorable_at = 0.0
        # Marks that are in the inbox already, so that not every claim writes them again.
        self._marked_not_alone: Set[Lease] = frozenset()
        self._skipping = False
        """Whether the database skipped a part of the last transaction, which is read again then."""
        self._skips = LimitedLog(logger, interval_seconds=SKIPS_SECONDS)
        self._handlers = pool(dispatcher, threads, wake)

    def close(self) -> None:
        """End the threads of its handlers; what it holds is due when the leases end."""
        self._handlers.close()
        self._leases.abandon()

    def _note_size(self, new_deliveries: Collection[StoredDelivery]) -> None:
        """Bound what the next poll reads, by the size of the deliveries that this one has read."""
        if new_deliveries:
            size = sum(len(one.body) for one in new_deliveries)
            self._rows_in_plan_bytes = max(1, len(new_deliveries) * PLAN_BYTES // max(1, size))

    def _collect(self) -> bool:
        """Collect finished attempts and expired leases; return whether the leases have to be renewed."""
        leases = self._leases
        finished, expired = self._handlers.finished()
        self._unsettled += finished
        leases.remove(run.lease for run in expired)
        renewing = leases.seconds_to_renewal() == 0.0
        if renewing:
            leases.shrink_window()
            # Keep as many queued runs as finished since the last renewal; release the rest.
            leases.release_later(self._handlers.cancel_queued(keep=leases.finished_since_renewal))
        return renewing

    def _write(self, poll: Poll) -> tuple[list[Claim], NextTimes]:
        """Write one poll to the inbox in one transaction: settle, plan, release, renew and claim.

        Return what it claimed, and when the next runs are due.
        """
        planned = self._dispatcher.plan(poll.new_deliveries)
        plans = [planned_delivery.plan for planned_delivery in planned]
        if poll.only is not None:
            plans = [
                plan if plan.delivery_id == poll.only else plan._replace(claimable=None) for plan in plans
            ]
        attempts, leases = self._unsettled, self._leases
        results = [attempt.run_result for attempt in attempts]
        settling = {result.lease for result in results}
        releasing, checking_orphans = leases.to_release, leases.orphan_check_due
        with self._inbox.transaction(self._owner, self._dispatcher.limits) as transaction:
            # All locks at once and in one order: workers that took theirs step by step could deadlock.
            transaction.lock(results, plans)
            # Settled first: that releases the next runs by their order keys, and the claim below takes them.
            settled = transaction.settle(results, self._dispatcher.clock.now)
            planned_here = transaction.plan(plans, poll.now)
            if releasing:
                transaction.release(releasing, poll.now)
            if checking_orphans:
                transaction.release_orphaned(list(leases.runs), poll.now)
            renewed = None
            if poll.renewing:
                kept = [lease for lease in leases.runs if lease not in settling]
                renewed = transaction.renew(kept, poll.leased_until)
            claims = self._claim(transaction, poll, settling) if poll.capacity else []
            next_times = poll.next_times or NOTHING_DUE
            # After a claim the inbox is polled again anyway. Else read here, which saves a transaction.
            if poll.reads_next and not claims:
                next_times = transaction.next_times(poll.only)
        # Committed. Nothing above changes what is in memory, so a transaction that failed can be repeated.
        self._unsettled = []
        leases.record_commit(settling, renewed, poll.leased_until, orphans_checked=checking_orphans)
        # By the very objects: once a file has been replaced, an id may name another delivery.
        events = {id(each.stored): each.event for each in planned}
        for claim in claims:
            run = ClaimedRun(claim, claim.lease, claim.leased_until, events.get(id(claim.delivery)))
            leases.add(run)
            self._handlers.submit(run)
        ours = set(planned_here)
        self._announce(
            transaction.released, [each.plan for each in planned if each.plan.delivery_id in ours], claims
        )
        self._dispatcher.report(transaction, attempts, settled, planned, planned_here)
        self._skipping = False
        if len(ours) < len(plans) or len(settled) < len(settling):
            self._check_skips({plan.delivery_id for plan in plans} - ours, settling - settled)
        return claims, next_times

    def _check_skips(self, unplanned: Set[int], unsettled: Set[Lease]) -> None:
        """Log an error if an update changed nothing although no other worker was there before."""
        with suppress(BillhookError):  # the next poll says why
            self._skipping = self._inbox.count_skipped(unplanned, unsettled) > 0
        if self._skipping:
            text = in_program(
                "the database skips updates without an error, probably by row security: deliveries are "
                "stored and not handled, or handled and not finished; run `billhook doctor`"
            )
            self._skips.log("skipped", logging.ERROR, text, cause="row-security")

    def _announce(self, released: list[int], planned: list[RunPlan], claims: list[Claim]) -> None:
        """Announce to other workers that runs are due which this one has not claimed.

        They are among those of `released` deliveries, and of those that were `planned` just now.
        """
        raise NotImplementedError

    def _claim(self, transaction: InboxTransaction, poll: Poll, settling: Set[Lease]) -> list[Claim]:
        if poll.suspect:
            suspect = transaction.claim_suspect(poll.now, poll.leased_until, poll.only, poll.next_times)
            claims = [] if suspect is None else [suspect]
        else:
            claims = transaction.claim(
                poll.capacity,
                poll.now,
                poll.leased_until,
                poll.only,
                # The others are claimed as queued: if this worker dies, that is no attempt of theirs.
                idle=self._leases.idle_threads(settling),
                suspects=poll.with_suspects,
                spread=poll.spread,
                times=poll.next_times,
            )
        # The inbox has to know which suspects are not alone any more.
        not_alone = poll.not_alone - settling
        if claims and not not_alone <= self._marked_not_alone:
            transaction.mark_not_alone(sorted(not_alone))
            self._marked_not_alone = not_alone
        return claims

    def _failed(self) -> None:
        """Record that a transaction failed."""
        # The COMMIT may have succeeded all the same: then runs are claimed that are not in our table.
        self._leases.mark_uncertain()
        # Written, or rolled back: it is marked again with the next claim.
        self._marked_not_alone = frozenset()

    def _settle_one_by_one(self) -> None:
        """Settle each result in a transaction of its own: one that cannot be stored must not hold up others.

        Such a one is tried again alone, and keeps its lease: the handler is not called again meanwhile.
        """
        for attempt in list(self._unsettled):
            try:
                self._inbox.check_writable()  # otherwise it is not for one of them
            except BillhookError:
                return
            self._unsettled.remove(attempt)
            if not self._settle_alone(attempt):
                self._unstorable.append(attempt)
                text = "the result of run %d of handler %s cannot be stored, and is tried again alone"
                run_id, delivery = attempt.run_result.run_id, attempt.delivery
                logger.error(text, run_id, delivery.handler, extra=delivery_fields(delivery))

    def _settle_alone(self, attempt: AttemptResult) -> bool:
        """Settle one result, or the same with plainer texts; return whether the database took it."""
        for result in (attempt.run_result, *attempt.run_result.plainer()):
            with (
                suppress(BillhookError),
                self._inbox.transaction(self._owner, self._dispatcher.limits) as transaction,
            ):
                transaction.lock([result], [])
                settled = transaction.settle([result], self._dispatcher.clock.now)
                break
        else:
            return False
        self._leases.remove([attempt.run_result.lease])
        self._dispatcher.report(transaction, [attempt], settled)
        self._announce(transaction.released, [], [])  # what waited for it in its order is due now
        return True

    def _retry_unstorable(self) -> float:
        """Try the results that could not be stored again, once in a while; return the seconds until then."""
        now = time.monotonic()
        if self._unstorable and now >= self._unstorable_at:
            self._unstorable = [attempt for attempt in self._unstorable if not self._settle_alone(attempt)]
            self._unstorable_at = now + UNSTORABLE_SECONDS
        return max(0.0, self._unstorable_at - now) if self._unstorable else math.inf
