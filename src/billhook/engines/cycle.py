"""The cycle: settle results, plan deliveries and claim due runs in one transaction. Each run goes through it.

An engine collects the attempts that have ended, reads what there is to do, and writes all of it at once. What
finishes and arrives while it commits makes up the next batch.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from billhook.basics.concurrency import unique_process_name
from billhook.basics.type_names import is_reading
from billhook.engines.dispatcher import AttemptResult, Dispatcher
from billhook.engines.handler_pool import ClaimedRun, HandlerPool
from billhook.engines.lease_table import LeaseTable
from billhook.engines.pacing import Pacing
from billhook.engines.readers import MOST_HELD, READERS, Readers
from billhook.engines.reporting import PlannedDelivery, delivery_fields
from billhook.errors import BillhookError
from billhook.errors.program import in_program
from billhook.inbox import (
    NOTHING_DUE,
    Claim,
    Inbox,
    InboxTransaction,
    Lease,
    NextTimes,
    PollStart,
    RoundRobin,
    RunPlan,
    StoredDelivery,
)
from billhook.inbox.running.workers import WORKER_SILENT_AFTER
from billhook.logs import LimitedLog

logger = logging.getLogger("billhook.engines")

UNSTORABLE_SECONDS = 1.0
SKIPS_SECONDS = 60.0


@dataclass(slots=True)
class PollPlan:
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
    reads: bool = False  # whether readings are claimed for readers of their own, beside the capacity


class Cycle:
    """What every engine does with the inbox, in one thread, which `wake` wakes up when an attempt ends."""

    _polls_again = False
    """Whether a poll may leave what the next one finds: else each finds all that there is."""
    _skipping: bool
    """Whether the database skipped a part of the last transaction, which is read again then."""

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
        self._lists = dispatcher.lists
        self._turns = RoundRobin(dispatcher.queue_of)
        database = inbox.database
        self._pacing = Pacing(database.plan_rows, keeps_entries=self._polls_again and database.keeps_entries)
        self._start: PollStart | None = None
        """Where the last poll began in the indexes; None: at their beginnings."""
        self._lease_time = timedelta(seconds=lease_seconds)
        self._owner = unique_process_name()
        self._leases = LeaseTable(threads, lease_seconds, inbox.held)
        self._unsettled: list[AttemptResult] = []
        self._unstorable: list[AttemptResult] = []
        self._unstorable_at = 0.0
        # Marks that are in the inbox already, so that not every claim writes them again.
        self._marked_not_alone: Set[Lease] = frozenset()
        self._skips = LimitedLog(logger, interval_seconds=SKIPS_SECONDS)
        self._handlers = pool(dispatcher, threads, wake)
        self._readers: Readers | None = None
        """The threads that read events of own types; without them, handlers' threads do."""

    def close(self) -> None:
        """End the threads that call handlers. Runs that are still held become due when their leases end."""
        self._handlers.close()
        if self._readers is not None:
            self._readers.close()
        self._leases.abandon()

    def _collect(self) -> bool:
        """Collect finished attempts and expired leases; return whether the leases have to be renewed."""
        leases = self._leases
        finished, expired = self._handlers.finished()
        readers = self._readers if self._readers is not None and self._readers.started else None
        if readers is not None:
            read, unread = readers.finished()
            finished, expired = finished + read, expired + unread
        self._unsettled += finished
        leases.remove(run.lease for run in expired)
        renewing = leases.seconds_to_renewal() == 0.0
        if renewing:
            if len(leases.runs) > len(leases.readings):
                leases.shrink_window()
            # Keep as many queued runs as finished since the last renewal; release the rest.
            leases.release_later(self._handlers.cancel_queued(keep=leases.finished_since_renewal))
            if readers is not None:
                leases.release_later(readers.cancel_queued())
        return renewing

    def _write(self, poll: PollPlan) -> tuple[list[Claim], NextTimes]:
        """Write one poll to the inbox in one transaction: settle, plan, release, renew and claim.

        Return what it claimed, and when the next runs are due.
        """
        if any(attempt.planned is not None for attempt in self._unsettled):
            self._leave_read(poll.now)
        planned = self._plan(poll)
        plans = [planned_delivery.plan for planned_delivery in planned]
        attempts, leases = self._unsettled, self._leases
        results = [attempt.run_result for attempt in attempts]
        settling = {result.lease for result in results}
        found = [attempt.planned for attempt in attempts if attempt.planned is not None]
        releasing, checking_orphans = leases.to_release, time.monotonic() >= leases.orphan_check_at
        with self._inbox.transaction(self._owner, self._dispatcher.limits) as transaction:
            # All locks at once and in one order: workers that took theirs step by step could deadlock.
            transaction.lock(results, [*plans, *(each.plan for each in found)])
            # Settled first: that releases the next runs by their order keys, and the claim below takes them.
            settled, read_here = self._settle(transaction, attempts, poll.now)
            planned_here = transaction.plan(plans, poll.now)
            written, planned_here = [*found, *planned], [*read_here, *planned_here]
            transaction.note = self._lists.note(written, planned_here, poll.now) if planned_here else None
            if releasing:
                transaction.release(releasing, poll.now)
            if checking_orphans:
                transaction.release_orphaned(list(leases.runs), poll.now)
            renewed = None
            if poll.renewing:
                kept = [lease for lease in leases.runs if lease not in settling]
                renewed = transaction.renew(kept, poll.leased_until)
            claims = self._claim(transaction, poll, settling) if poll.capacity or poll.reads else []
            next_times = poll.next_times or NOTHING_DUE
            # After a claim the inbox is polled again anyway. Else read here, which saves a transaction.
            if poll.reads_next and not claims:
                next_times = self._lists.own_times(transaction.next_times(poll.only, self._start))
        # Committed. Nothing above changes what is in memory, so a transaction that failed can be repeated.
        self._unsettled = []
        if transaction.note is not None:
            self._lists.noted(transaction.note)
        leases.record_commit(settling, renewed, poll.leased_until, orphans_checked=checking_orphans)
        # Match by object identity: if the SQLite file was replaced meanwhile, an id may be of another one.
        events = {id(each.stored): each.event for each in written}
        for claim in claims:
            run = ClaimedRun(claim, claim.lease, claim.leased_until, events.get(id(claim.delivery)))
            if self._readers is not None and is_reading(claim.handler):
                leases.add(run, reading=True)
                self._readers.submit(run)
            else:
                leases.add(run)
                self._handlers.submit(run)
        ours = set(planned_here)
        self._announce(
            transaction.released, [each.plan for each in written if each.plan.delivery_id in ours], claims
        )
        self._dispatcher.report(transaction, attempts, settled, written, planned_here)
        self._skipping = False
        if len(ours) < len(plans) + len(found) or len(settled) < len(settling):
            self._check_skips({plan.delivery_id for plan in plans} - ours, settling - settled)
        return claims, next_times

    def _leave_read(self, now: datetime) -> None:
        """Release the readings of event types that processes with a newer list of handlers plan by now."""
        if self._lists.is_stale:
            self._write_list()
        self._lists.look(now)
        left = {
            attempt.run_result.lease
            for attempt in self._unsettled
            if attempt.planned is not None and not self._lists.types.has(attempt.delivery.event_type)
        }
        if left:
            self._unsettled = [each for each in self._unsettled if each.run_result.lease not in left]
            held = self._leases.runs
            self._leases.release_later([held[lease] for lease in left if lease in held])

    def _plan(self, poll: PollPlan) -> list[PlannedDelivery]:
        """Plan what the poll has read; nothing if this process's list of handlers has changed meanwhile."""
        planned = self._dispatcher.plan(poll.new_deliveries)
        if self._lists.is_stale:  # another process may have to plan them now
            poll.full = True
            self._write_list()
            return []
        if poll.only is not None:
            planned = [
                each
                if each.plan.delivery_id == poll.only
                else each._replace(plan=each.plan._replace(claimable=None))
                for each in planned
            ]
        return planned

    def _settle(
        self, transaction: InboxTransaction, attempts: Collection[AttemptResult], now: datetime
    ) -> tuple[set[Lease], list[int]]:
        """Write the results of attempts, and the plans that readings have made.

        Returns the leases that still held, and the deliveries of those plans.
        """
        results = [attempt.run_result for attempt in attempts if attempt.planned is None]
        settled = transaction.settle(results, self._dispatcher.clock.now)
        if not any(is_reading(attempt.delivery.handler) for attempt in attempts):
            return settled, []
        found = {each.run_result.lease: each.planned.plan for each in attempts if each.planned is not None}
        alone = settled.intersection(each.run_result.lease for each in attempts if each.alone)
        read, planned_here = transaction.end_readings(found, alone, now)
        return settled | read, planned_here

    def _check_skips(self, unplanned: Set[int], unsettled: Set[Lease]) -> None:
        """Log an error if an update changed no row although no other worker had changed it before."""
        with suppress(BillhookError):  # the next poll says why
            self._skipping = self._inbox.count_skipped(unplanned, unsettled) > 0
        if self._skipping:
            text = in_program(
                "the database skips updates without an error, probably by row security: deliveries are "
                "stored and not handled, or handled and not finished; run `billhook doctor`"
            )
            self._skips.log("skipped", logging.ERROR, text, cause="row-security")

    def _announce(self, released: list[int], planned: list[RunPlan], claims: list[Claim]) -> None:
        """Notify other workers of due runs that this worker has not claimed.

        These are runs of `released` deliveries, and of deliveries that were `planned` in this poll.
        """
        raise NotImplementedError

    def _read(self, limit: int, only: int | None = None) -> tuple[list[StoredDelivery], NextTimes, bool]:
        """Read the deliveries that this process plans, and when the next runs are due that it may claim.

        Returns also whether more deliveries may wait.
        """
        lists, now = self._lists, self._dispatcher.clock.now()
        alive_since, own = now - WORKER_SILENT_AFTER, lists.own.stored_names if lists.own is not None else ()
        for first in (True, False):
            began = time.monotonic()
            self._start = self._pacing.start(limit, began, own)
            found = self._inbox.poll(
                *(limit, self._dispatcher.limits, only, self._turns),
                types=lists.types,
                alive_since=alive_since,
                start=self._start,
            )
            self._pacing.record_start(self._start, *found, now, began, time.monotonic())
            unread, times, again = lists.own_of(*found, now)
            if not (again and first and only is None):
                break
            # What is behind them may be planned here.
        self._pacing.record_read(unread.deliveries)
        return unread.deliveries, times, again or len(unread.deliveries) == limit

    def _write_list(self) -> None:
        """Write this process's list of handlers to the inbox, because the list has changed."""
        raise NotImplementedError

    def _claim(self, transaction: InboxTransaction, poll: PollPlan, settling: Set[Lease]) -> list[Claim]:
        lists = self._lists
        if poll.suspect:
            suspect = transaction.claim_suspect(
                poll.now, poll.leased_until, poll.only, poll.next_times, lists.may_claim, lists.may_call
            )
            claims = [] if suspect is None else [suspect]
        else:
            own = frozenset() if lists.own is None else lists.own.stored_names
            apart = self._readers is not None
            claims = []
            if poll.capacity:
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
                    which=lambda name: (
                        name in own or (not (apart and is_reading(name)) and lists.may_claim(name))
                    ),
                    may_call=lists.may_call,
                )
            if self._readers is not None and poll.reads:
                names = {*transaction.due_names, *(name for _, name in transaction.left_to_claim)}
                if poll.next_times is not None:
                    names.update(poll.next_times.names_due(poll.now))
                if any(map(is_reading, names)):
                    claims += self._claim_readings(transaction, poll, settling, self._readers)
        # The inbox has to know which suspects are not alone any more.
        not_alone = poll.not_alone - settling
        if claims and not not_alone <= self._marked_not_alone:
            transaction.mark_not_alone(sorted(not_alone))
            self._marked_not_alone = not_alone
        return claims

    def _claim_readings(
        self, transaction: InboxTransaction, poll: PollPlan, settling: Set[Lease], readers: Readers
    ) -> list[Claim]:
        """Claim readings for the free readers, whose number does not count in the poll's capacity."""
        leases = self._leases
        held = [leases.runs[lease] for lease in leases.readings - settling]
        return transaction.claim(
            MOST_HELD,
            poll.now,
            poll.leased_until,
            idle=max(0, READERS - len(held)),
            suspects=False,
            spread=poll.spread,
            times=poll.next_times,
            which=lambda name: is_reading(name) and self._lists.may_read(name),
            most=readers.capacity(held),
        )

    def _failed(self) -> None:
        """Record that a transaction failed."""
        # The COMMIT may have succeeded all the same: then runs are claimed that are not in our table.
        self._leases.mark_uncertain()
        # Written, or rolled back: it is marked again with the next claim.
        self._marked_not_alone = frozenset()

    def _settle_one_by_one(self) -> None:
        """Settle each result in a transaction of its own: one that cannot be stored must not hold up others.

        A result that cannot be stored is tried again later. Its lease is kept, so that the handler is not
        called again meanwhile.
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
                run_id, delivery = attempt.run_result.lease.run_id, attempt.delivery
                logger.error(text, run_id, delivery.handler, extra=delivery_fields(delivery))

    def _settle_alone(self, attempt: AttemptResult) -> bool:
        """Settle one result, or the same without its texts; return whether the database took it."""
        for ended in (attempt, attempt.without_texts()):
            planned = [] if ended.planned is None else [ended.planned]
            plans = [each.plan for each in planned]
            with (
                suppress(BillhookError),
                self._inbox.transaction(self._owner, self._dispatcher.limits) as transaction,
            ):
                transaction.lock([ended.run_result], plans)
                settled, here = self._settle(transaction, [ended], self._dispatcher.clock.now())
                break
        else:
            return False
        self._leases.remove([attempt.run_result.lease])
        self._dispatcher.report(transaction, [ended], settled, planned, here)
        # What waited for it in its order is due now.
        self._announce(transaction.released, plans if here else [], [])
        return True

    def _retry_unstorable(self) -> float:
        """Retry results that could not be stored, if it is time to; return the seconds until the next try."""
        now = time.monotonic()
        if self._unstorable and now >= self._unstorable_at:
            self._unstorable = [attempt for attempt in self._unstorable if not self._settle_alone(attempt)]
            self._unstorable_at = now + UNSTORABLE_SECONDS
        return max(0.0, self._unstorable_at - now) if self._unstorable else math.inf
