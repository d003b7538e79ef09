"""The executor: handles one delivery by its id, in a Celery task.

Each run costs two transactions: one plans and claims it, the other settles it and claims the next run of
the delivery. The claim decides which worker calls a handler, so a message may come twice, late or never.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from billhook.clock import Clock
from billhook.engines.dispatcher import AttemptResult, Dispatcher, PlannedDelivery
from billhook.engines.handler_pool import HandlerPool
from billhook.engines.leases import ClaimedRun, process_owner
from billhook.engines.reporting import delivery_fields
from billhook.errors import InboxUnavailable
from billhook.events import Event, UnknownEvent
from billhook.inbox import Claim, Inbox, Lease, RunResult, RunState
from billhook.logs import fields
from billhook.threads import reset_in_child, start_thread

__all__ = ["DeliveryExecutor", "Heartbeat", "SharedLock"]

logger = logging.getLogger("billhook.engines")

PLAN_LIMIT = 100
SETTLE_SECONDS = 300.0
"""How long a result is kept and retried while the inbox cannot be written."""


class DeliveryExecutor:
    """Handles deliveries by their ids, in any thread or process that calls it."""

    def __init__(
        self,
        inbox: Inbox,
        dispatcher: Dispatcher,
        *,
        lease_seconds: float,
        publish: Callable[[int], object],
    ) -> None:
        """`publish` is called with a delivery's id once for each run of it that another worker may take."""
        self._inbox = inbox
        self._dispatcher = dispatcher
        self._lease_time = timedelta(seconds=lease_seconds)
        self._publish = publish
        self._isolation = SharedLock(lease_seconds)
        self._suspects: set[Lease] = set()
        self._heartbeat = Heartbeat(inbox, dispatcher.clock, lease_seconds=lease_seconds)
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._idle_threads: deque[_TimedThread] = deque()

    def execute(self, delivery_id: int) -> None:
        """Call the handlers of one delivery until none is due. Raises InboxUnavailable.

        Runs are claimed one at a time, so that a handler that hangs does not hold its siblings. Suspects
        come last, and each runs alone in this process.
        """
        with self._isolation.shared():
            claim, event, is_only_run = self._plan_and_claim(delivery_id)
            if claim is not None:
                self._mark_not_alone()
            while claim is not None:
                with self._heartbeat.renewing(claim):
                    attempt = self._attempt(claim, event)
                    claim = None if attempt is None else self._settle(attempt, is_only_run)
        # Outside `shared`: a thread that held it and waited for `exclusive` would wait for itself.
        while not is_only_run and self._inbox.suspect_due(delivery_id, self._dispatcher.clock.now()):
            with self._isolation.exclusive():
                self._execute_suspect(delivery_id)

    # --- claim ----------------------------------------------------------------------------------------

    def _plan_and_claim(self, delivery_id: int) -> tuple[Claim | None, Event | UnknownEvent | None, bool]:
        """Claim a run; return it with its event, if that was just parsed, and whether it is the only run.

        A delivery that needs no more than its runs made takes the fast path: single statements, which cost
        a fifth of the general way's transaction.
        """
        now = self._dispatcher.clock.now()
        claim: Claim | None = None
        planned: list[PlannedDelivery] = []
        with self._inbox.fast_path.read(delivery_id, now) as snapshot:
            if snapshot.stored is not None:
                planned = self._dispatcher.plan([snapshot.stored])
                plan = planned[0].plan
                if self._dispatcher.fits_fast_path(plan) and not snapshot.paused:
                    claim = snapshot.plan_and_claim(plan, process_owner(), now, now + self._lease_time)
        runs = len(planned[0].plan.handlers) if planned else 0
        if claim is not None:
            # A message for each sibling, so that other workers run them side by side with this one.
            for _ in range(runs - 1):
                self._publish(delivery_id)
        elif planned or snapshot.due:
            if planned and planned[0].plan.options:
                self._plan_earlier(delivery_id)
            claim = self._claim(delivery_id, planned)
            runs = 0
        return claim, planned[0].event if planned else None, runs == 1

    def _plan_earlier(self, delivery_id: int) -> None:
        """Plan the deliveries received before this one: messages come in any order, ordered runs must not."""
        while True:
            received = self._inbox.received(PLAN_LIMIT)
            planned = self._dispatcher.plan(stored for stored in received if stored.delivery_id < delivery_id)
            with self._inbox.transaction(process_owner()) as transaction:
                planned_here = transaction.plan(
                    [planned_delivery.plan for planned_delivery in planned], self._dispatcher.clock.now()
                )
            self._dispatcher.report(
                planned=planned, planned_here=planned_here, duplicates=transaction.duplicates
            )
            again = [
                planned_delivery.plan.delivery_id
                for planned_delivery in planned
                for _ in planned_delivery.plan.handlers
            ]
            for published_id in (*again, *transaction.released):
                self._publish(published_id)
            if len(planned) < PLAN_LIMIT:
                return

    def _claim(self, delivery_id: int, planned: list[PlannedDelivery]) -> Claim | None:
        """Claim a run the general way: of a delivery with order or content keys, or planned before."""
        now = self._dispatcher.clock.now()
        with self._inbox.transaction(process_owner(), self._dispatcher.limits) as transaction:
            planned_here = transaction.plan([planned_delivery.plan for planned_delivery in planned], now)
            claims = transaction.claim(1, now, now + self._lease_time, only=delivery_id, suspects=False)
        self._dispatcher.report(planned=planned, planned_here=planned_here, duplicates=transaction.duplicates)
        for released_id in transaction.released:
            self._publish(released_id)
        # The first run is this worker's; its siblings are for others.
        for planned_delivery in planned:
            for _ in planned_delivery.plan.handlers[1:]:
                self._publish(delivery_id)
        return claims[0] if claims else None

    # --- suspects -------------------------------------------------------------------------------------

    def _execute_suspect(self, delivery_id: int) -> None:
        now = self._dispatcher.clock.now()
        with self._inbox.transaction(process_owner(), self._dispatcher.limits) as transaction:
            claim = transaction.claim_suspect(now, now + self._lease_time, only=delivery_id)
        for released_id in transaction.released:
            self._publish(released_id)
        if claim is None:
            return
        self._mark_not_alone()
        lease = claim.lease
        self._suspects.add(lease)
        try:
            with self._heartbeat.renewing(claim):
                attempt = self._attempt(claim, None)
                if attempt is not None:
                    self._settle(attempt, is_only_run=False, claim_next=False)
        finally:
            self._suspects.discard(lease)

    def _mark_not_alone(self) -> None:
        """Mark suspects that still run here, their exclusive time over, as not alone any more."""
        if suspects := self._suspects.copy():
            with self._inbox.transaction(process_owner()) as transaction:
                transaction.mark_not_alone(sorted(suspects))

    # --- attempt and settle ---------------------------------------------------------------------------

    def _attempt(self, claim: Claim, event: Event | UnknownEvent | None) -> AttemptResult | None:
        """Make one attempt; return None if the lease had expired before it started."""
        handler = self._dispatcher.find_handler(claim)
        if handler is None or handler.timeout_seconds is None:
            return self._dispatcher.attempt(claim, event, handler)
        run = ClaimedRun(claim, event, claim.leased_until, claim.lease)
        try:
            thread = self._idle_threads.pop()
        except IndexError:
            thread = _TimedThread(self._dispatcher)
        attempt = thread.attempt(run)
        self._idle_threads.append(thread)
        return attempt

    def _settle(self, attempt: AttemptResult, is_only_run: bool, claim_next: bool = True) -> Claim | None:
        """Write the result of an attempt, and claim the delivery's next run, if there may be one."""
        end = time.monotonic() + SETTLE_SECONDS
        result = attempt.run_result
        # The handler has had its effect. Given up, the result would be lost and the handler called again, so
        # it is retried for long, while the heartbeat tries to renew the lease.
        while True:
            try:
                settled, claim = self._write(result, is_only_run, claim_next)
            except InboxUnavailable as error:
                if time.monotonic() > end:
                    raise
                text = "could not settle run %d, retrying: %s"
                extra = delivery_fields(attempt.delivery, attempt.handler, cause=error)
                logger.error(text, result.run_id, error, extra=extra)  # noqa: TRY400
                time.sleep(0.5)
            else:
                self._dispatcher.report(attempts=[attempt], settled=settled)
                return claim

    def _write(
        self, result: RunResult, is_only_run: bool, claim_next: bool
    ) -> tuple[set[Lease], Claim | None]:
        if is_only_run and result.state is RunState.SUCCEEDED:
            settled = self._inbox.fast_path.settle(result)
            return {result.lease} if settled else set(), None
        now = self._dispatcher.clock.now()
        if is_only_run:  # the next run is this one again, if it is to be retried at once
            claim_next = claim_next and result.due_at is not None and result.due_at <= now
        claims: list[Claim] = []
        with self._inbox.transaction(process_owner(), self._dispatcher.limits) as transaction:
            settled_leases = transaction.settle([result])
            transaction.apply_limits(now)
            if claim_next:
                only = result.delivery_id
                claims = transaction.claim(1, now, now + self._lease_time, only=only, suspects=False)
        # Runs that waited for this one, by their order key or a limit, need a message now.
        for delivery_id in transaction.released:
            self._publish(delivery_id)
        self._dispatcher.report(paused=transaction.paused)
        return settled_leases, claims[0] if claims else None


class _TimedThread:
    """A thread beside Celery's, in which handlers with a time-out are called one after the other.

    In any of Celery's pools it is abandoned when a handler hangs, and replaced.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._done = threading.Event()
        self._pool = HandlerPool(dispatcher, 1, self._done.set)

    def attempt(self, run: ClaimedRun) -> AttemptResult | None:
        """Call the handler of a run; return None if its lease had expired before it started."""
        self._pool.submit(run)
        while not (attempts := self._pool.finished()) and not self._pool.expired():
            pause = self._pool.seconds_to_timeout()
            self._done.wait(0.05 if pause is None else pause + 0.001)
        self._done.clear()
        return attempts[0] if attempts else None


class Heartbeat:
    """Renews leases while handlers run, in one thread a process, which sleeps while no lease is held.

    A claim costs an entry in a dictionary: the thread wakes up after a third of the lease time, and most
    handlers have returned by then.
    """

    def __init__(self, inbox: Inbox, clock: Clock, *, lease_seconds: float) -> None:
        self._inbox = inbox
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._starting = threading.Lock()
        self._renew_at: dict[Lease, float] = {}
        self._awake = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def renewing(self, claim: Claim) -> Iterator[None]:
        """Renew the claim's lease until the block ends."""
        lease = claim.lease
        if self._thread is None or not self._thread.is_alive():
            self._start()
        self._renew_at[lease] = time.monotonic() + self._lease_seconds / 3
        if not self._awake.is_set():
            self._awake.set()
        try:
            yield
        finally:
            self._renew_at.pop(lease, None)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = start_thread(self._beat, "billhook-heartbeat")

    def _beat(self) -> None:
        while True:
            renew_at = self._renew_at.copy()  # other threads add and remove meanwhile
            if not renew_at:
                self._awake.clear()
                # Looked at again after the clear: `renewing` adds first and sets then.
                if not self._renew_at:  # pragma: no branch - a run may be claimed right here
                    self._awake.wait()
                continue
            pause = min(renew_at.values()) - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            else:
                now = time.monotonic()
                self._renew([lease for lease, at in renew_at.items() if at <= now])

    def _renew(self, leases: Sequence[Lease]) -> None:
        until = self._clock.now() + timedelta(seconds=self._lease_seconds)
        try:
            with self._inbox.transaction(process_owner()) as transaction:
                renewed = transaction.renew(leases, until)
            again_at = time.monotonic() + self._lease_seconds / 3
        except Exception as error:  # noqa: BLE001 - a defect must not end the only thread that renews
            extra = fields(cause=error, count=len(leases))
            logger.error("could not renew %d leases: %s", len(leases), error, extra=extra)  # noqa: TRY400
            # They may hold still: try again before they expire.
            renewed = set(leases)
            again_at = time.monotonic() + min(1.0, self._lease_seconds / 10)
        for lease in leases:
            # Its handler returned during the renewal: put back, it would be renewed for ever.
            if lease not in self._renew_at:
                continue
            if lease in renewed:
                self._renew_at[lease] = again_at
            else:
                self._renew_at.pop(lease, None)  # lost: the worker that claimed it next will settle it


class SharedLock:
    """Lets runs execute side by side (`shared`), or a suspect alone (`exclusive`), among threads.

    Neither waits longer than a lease time for one who does not leave.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._changed = threading.Condition()
        self._inside = 0
        self._exclusive_until = 0.0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock together with others, once it is not held exclusively."""
        with self._changed:
            self._wait_while_exclusive()
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock alone, once its holders have left; new ones wait meanwhile."""
        with self._changed:
            self._wait_while_exclusive()
            self._exclusive_until = time.monotonic() + self._lease_seconds
            self._changed.wait_for(lambda: self._inside == 0, self._lease_seconds)
            self._exclusive_until = ours = time.monotonic() + self._lease_seconds
        try:
            yield
        finally:
            with self._changed:
                if self._exclusive_until == ours:  # else we took too long, and another thread has it by now
                    self._exclusive_until = 0.0
                self._changed.notify_all()

    def _wait_while_exclusive(self) -> None:
        while (left := self._exclusive_until - time.monotonic()) > 0:
            self._changed.wait(left)
