"""The worker: claims due runs, has a pool of threads call their handlers, and settles the results.

One thread speaks to the inbox, for the `thread` and `worker` engines alike. Each poll settles, plans and
claims in one transaction; what finishes and arrives while it commits makes up the next batch.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Mapping, Set
from contextlib import suppress
from datetime import datetime

from billhook.basics.concurrency import wait_readable
from billhook.basics.engine_kinds import WORKER
from billhook.basics.type_names import is_reading
from billhook.engines.cycle import Cycle, PollPlan
from billhook.engines.descriptors import DescriptorMonitor
from billhook.engines.dispatcher import Dispatcher
from billhook.engines.maintenance import (
    DEFAULT_MAINTENANCE,
    Maintenance,
    MaintenanceOptions,
    WorkerRegistration,
)
from billhook.engines.pacing import GATHER_SECONDS, LOAD_RUNS, READING_LOCKED_SECONDS
from billhook.engines.readers import Readers
from billhook.engines.reporting import log_paused
from billhook.engines.suspects import ClaimMode, SuspectPolicy
from billhook.errors import BillhookError, SchemaMismatch
from billhook.inbox import NOTHING_DUE, Claim, Inbox, Lease, NextTimes, RunPlan
from billhook.logs import fields


class Wakeup:
    """As threading.Event, but the wait ends too when another process notifies the inbox.

    It is a pipe for the threads of this process, beside the descriptor of the inbox's waker.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._read, self._write = os.pipe()
        # Not blocking: a full pipe wakes up as well as one byte does.
        os.set_blocking(self._write, False)
        self._is_set = False
        # Reentrant: a signal handler may wake the worker up while its thread does.
        self._descriptors = threading.RLock()
        self._closed = False

    def set(self) -> None:
        """Wake the worker up; callable from any thread, and cheap if it is set already."""
        if not self._is_set:
            self._is_set = True
            with self._descriptors, suppress(BlockingIOError):
                if not self._closed:
                    os.write(self._write, b"!")

    def close(self) -> None:
        """Close the pipe. `set` does nothing from now on; `wait` must not be called any more."""
        with self._descriptors:
            if not self._closed:
                self._closed = True
                os.close(self._read)
                os.close(self._write)

    def clear(self) -> None:
        """Clear the flag. Call it before reading the queue, so that a wake-up during the read is not lost."""
        self._is_set = False
        with suppress(OSError):  # the waker is not available: the next slow poll finds the rows
            self._inbox.waker.fileno()

    def wait(self, seconds: float) -> None:
        """Sleep until woken up, or until the time is over."""
        if seconds <= 0 or self._is_set:
            return
        waker = self._inbox.waker
        descriptors = [self._read]
        with suppress(OSError):
            descriptors.append(waker.fileno())
        ready = wait_readable(descriptors, seconds)
        if self._read in ready:
            os.read(self._read, 65_536)
        # Drained, or it would be ready again at once, and the worker would spin.
        if ready - {self._read}:
            with suppress(OSError):
                waker.wait(0)


logger = logging.getLogger("billhook.engines")

STALLED_SECONDS = 60.0
MAX_ABANDONED_THREADS = 100
"""With more handler threads abandoned and still running, the process should be replaced by a new one."""


class Worker(Cycle):
    """Handles the deliveries of an inbox until it is stopped: `run` it in a thread or as a process."""

    _polls_again = True

    def __init__(
        self,
        inbox: Inbox,
        dispatcher: Dispatcher,
        *,
        threads: int,
        lease_seconds: float,
        engine: str = WORKER.name,
        maintenance: MaintenanceOptions = DEFAULT_MAINTENANCE,
    ) -> None:
        self._wakeup = Wakeup(inbox)
        super().__init__(
            inbox, dispatcher, threads=threads, lease_seconds=lease_seconds, wake=self._wakeup.set
        )
        self._readers = self._own_readers = Readers(dispatcher, self._wakeup.set)
        # Not a threading.Event: a signal handler may call `stop` while this thread is inside its wait().
        self._stopping = False
        self._registration = WorkerRegistration(inbox, self._owner, engine, dispatcher.lists, threads=threads)
        self._maintenance = Maintenance(inbox, maintenance, registration=self._registration)
        self._is_held = False
        """Whether an operator has this worker start no run."""
        self._is_outdated = False
        """Whether the inbox has the schema of a newer release, so that no result can be stored any more."""
        self._polled_at, self._next_poll_at = time.monotonic(), 0.0
        self._suspects = SuspectPolicy(lease_seconds, threads)
        self._descriptors = DescriptorMonitor()
        self._detached = self._out_of_threads = False

    def wake(self) -> None:
        """Poll the inbox now; callable from any thread."""
        self._wakeup.set()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when running attempts have ended or its grace period has.

        Callable from any thread and from a signal handler.
        """
        self._stopping = True
        self.wake()

    def detach(self) -> None:
        """Stop without using the inbox any more, even if results are unsettled: it is being closed."""
        self._detached = True
        self.stop()

    def close(self) -> None:
        """Close what it woke up by; call it when `run` has returned, or was never called."""
        super().close()
        self._wakeup.close()

    @property
    def broken(self) -> bool:
        """Whether no handler can run in this process any more, so that it should be replaced."""
        return self._out_of_threads or self._descriptors.exhausted

    @property
    def is_stalled(self) -> bool:
        """Whether the loop has begun no poll for a minute: it is no pause, for those are 5 s at most."""
        return time.monotonic() - self._polled_at > STALLED_SECONDS

    def run(self, grace_seconds: float = 25.0, *, max_abandoned_threads: float = math.inf) -> None:
        """Poll until `stop`. After a storage failure the poll is logged and repeated; nothing is lost.

        Returns by itself, and is `broken`, when `max_abandoned_threads` have a handler that does not return,
        or when the system provides no thread or no descriptors.
        """
        readers, descriptors = self._own_readers, self._descriptors
        self._maintenance.start(self._dispatcher.clock.now(), lambda: self._stopping)
        log_paused(self._inbox, self._dispatcher.sender)
        while not (
            self._stopping
            or descriptors.exhausted
            or self._handlers.exhausted(max_abandoned_threads)
            or (readers.started and readers.exhausted(max_abandoned_threads))
        ):
            self._sleep(self._poll())
        if descriptors.exhausted:
            logger.error("worker stopping: out of file descriptors, or a handler closed them")
        elif not self._stopping:
            self._out_of_threads = True
            logger.error("worker stopping: no threads left, too many handlers never returned")
        self._drain(grace_seconds)

    def _poll(self) -> float:
        """Poll once and return the seconds to sleep after it. An error is logged, and the poll repeated."""
        self._polled_at = time.monotonic()
        if self._detached:
            return 0.0
        try:
            pause = self._poll_once()
            if self._unstorable:
                pause = min(pause, self._retry_unstorable())
            if not self._stopping:  # a stop must not wait for a batch of old deliveries
                pause = min(pause, self._maintenance.run_if_due(self._dispatcher.clock.now()))
        except Exception as error:
            pause = self._pacing.record_failure()
            self._is_outdated = isinstance(error, SchemaMismatch)
            self._descriptors.record(error)
            self._failed()
            # The text says all about a storage failure; anything else is a defect, and needs its traceback.
            defect = not isinstance(error, BillhookError)
            text = "worker poll failed, retrying in %.1f s: %s"
            logger.exception(text, pause, error, exc_info=defect, extra=fields(cause=error))  # noqa: TRY401
            if self._pacing.failures > 1 and self._unsettled and not self._detached:
                self._settle_one_by_one()
            self._back_off(pause)
            return 0.0
        self._is_outdated = False
        took, commit_seconds = time.monotonic() - self._polled_at, self._inbox.database.commit_seconds
        slow_seconds = self._pacing.record_success(took, commit_seconds, self._leases.seconds_to_renewal())
        if slow_seconds:
            self._next_poll_at = time.monotonic() + slow_seconds
        return pause

    def _sleep(self, seconds: float) -> None:
        try:
            if not self._detached:
                self._wakeup.wait(seconds)
                # Under load, pause so that one transaction carries more runs: one more costs little. A worker
                # that cannot keep up has enough work for the next transaction, and does not wait.
                while (left := self._next_poll_at - time.monotonic()) > 0 and not self._stopping:
                    time.sleep(min(0.1, left))
        except OSError as error:  # a handler has closed the descriptors it waits for
            self._descriptors.record(error)
            self._back_off(0.1)

    def _back_off(self, seconds: float) -> None:
        """Sleep until `stop`, wake-ups or not: notifications of new deliveries must not hurry the retry."""
        end = time.monotonic() + seconds
        time.sleep(0.1)
        while not self._stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(0.1, left))

    def _write_list(self) -> None:
        self._registration.write(self._dispatcher.clock.now())

    def _poll_once(self) -> float:
        """Settle, plan and claim in one transaction, if there is work; return the seconds to sleep."""
        if self._registration.started_at is None:  # the first plan goes by the lists of all that are alive
            self._write_list()
        self._wakeup.clear()
        before = len(self._unsettled)
        renewing = self._collect()
        failures = [attempt.failure for attempt in self._unsettled[before:]]
        if self._descriptors.failing or any(failures):
            for failure in failures:
                self._descriptors.record(failure.exception if failure else None)
        poll, claiming = self._plan_poll(renewing)
        leases, suspects = self._leases, self._suspects
        writing = self._unsettled or poll.renewing or leases.to_release
        if not (writing or claiming or time.monotonic() >= leases.orphan_check_at):
            next_times = poll.next_times if poll.next_times and poll.capacity else NOTHING_DUE
            return self._seconds_to_sleep(next_times, poll.now)
        settled, releasing = len(self._unsettled), bool(leases.to_release)
        claims, next_times = self._write(poll)
        if poll.suspect and poll.capacity:
            suspects.started(claims[0].lease if claims else None)
        if releasing:  # other workers may be asleep
            self._inbox.waker.wake()
        readings = sum(is_reading(one.handler) for one in claims)
        claimed = len(claims) - readings
        if claimed + settled >= LOAD_RUNS and claimed < poll.capacity and not poll.full:
            self._next_poll_at = time.monotonic() + GATHER_SECONDS
        if poll.capacity:
            self._pacing.record_claim(claimed, poll.capacity, next_times.apart()[0].due_at, poll.now)
        # After a claim that returned runs, or a full batch, there may be more: poll again at once.
        more = claimed > 0 or (poll.full and not self._skipping) or self._lists.wants_look
        if (more and leases.capacity()) or claimed < len(claims):
            return 0.0
        return self._seconds_to_sleep(next_times, poll.now)

    def _plan_poll(self, renewing: bool) -> tuple[PollPlan, bool]:
        """Read the inbox and decide what this poll writes, and whether any run is due that it may claim."""
        leases, suspects = self._leases, self._suspects
        settling = [attempt.run_result.lease for attempt in self._unsettled]
        capacity = 0 if self._stopping else leases.capacity(settling)
        started = self._started() if suspects.active else frozenset()
        ordinary_blocked = suspects.active and suspects.blocks_ordinary(started)
        # Nothing is read that could not be planned and claimed now: other workers may have capacity for it.
        reading = self._pacing.rows if capacity and not ordinary_blocked else 0
        new_deliveries, next_times, full = self._read(reading)
        if (self._owner in next_times.held) is not self._is_held:
            self._change_held()
        if self._is_held:
            new_deliveries, full, capacity = [], False, 0
        elif reading:
            self._lists.read_at = self._dispatcher.clock.now()
        ordinary, readings = next_times.apart()
        now = self._dispatcher.clock.now()
        # By now the leases of this process may be overdue: the read took long, or the clock was set forward.
        overdue = next_times.lease_ends_at is not None and next_times.lease_ends_at <= now
        renewing = renewing or leases.seconds_to_renewal() == 0.0 or (overdue and bool(leases.runs))
        ordinary_due = bool(new_deliveries) or self._pacing.is_worth_claiming(
            ordinary.due_at, now, idle=leases.idle_threads() > 0
        )
        mode = ClaimMode.ORDINARY
        suspect_due = next_times.suspect_at is not None and next_times.suspect_at <= now
        if not (self._stopping or self._is_held) and (suspect_due or suspects.active):
            mode = suspects.next_mode(self._started(), suspect_due=suspect_due, ordinary_due=ordinary_due)
        if mode is ClaimMode.ORDINARY:
            if ordinary_blocked:
                self.wake()  # for another poll at once: this one has not read the new deliveries
        else:
            new_deliveries, full = [], False
            capacity = min(capacity, 1) if mode is ClaimMode.A_SUSPECT else 0
            # Queued runs would start beside the suspect, and be lost with it.
            if not suspects.running:
                leases.release_later(self._handlers.cancel_queued() + self._own_readers.cancel_queued())
        reads = mode is ClaimMode.ORDINARY and not (self._stopping or self._is_held or ordinary_blocked)
        claiming = capacity > 0 and (ordinary_due or mode is ClaimMode.A_SUSPECT)
        claiming = claiming or bool(reads and readings and self._seconds_to_reading(readings, now) == 0.0)
        return (
            PollPlan(
                now,
                now + self._lease_time,
                next_times,
                new_deliveries,
                capacity,
                renewing,
                full=full and reading > 0,
                suspect=mode is ClaimMode.A_SUSPECT,
                # Suspects found in this claim fall due at random, so those lost together do not meet again.
                spread=self._lease_time / 6,
                # Suspects that take too long to be waited for are not alone any more.
                not_alone=suspects.overlong,
                reads=reads,
            ),
            claiming,
        )

    def _change_held(self) -> None:
        """Stop starting runs, as an operator holds this worker, and release those not started; or go on."""
        self._is_held = not self._is_held
        if self._is_held:
            self._leases.release_later(self._handlers.cancel_queued() + self._own_readers.cancel_queued())
        verb = "holds" if self._is_held else "resumed"
        logger.info("worker %s: an operator %s it", self._owner, verb, extra=fields(cause="operator"))

    def _seconds_to_reading(self, readings: Mapping[str, datetime], now: datetime) -> float | None:
        """Return the seconds until a reading may be claimed; None without one that the readers could take."""
        runs = self._leases.runs
        capacity = self._own_readers.capacity([runs[lease] for lease in self._leases.readings])
        moments = [at for name, at in readings.items() if capacity(name)]
        return max(0.0, (min(moments) - now).total_seconds()) if moments else None

    def _started(self) -> Set[Lease]:
        """Return the leases of attempts that are not done."""
        ended = (*self._unsettled, *self._unstorable)
        return self._leases.runs.keys() - {attempt.run_result.lease for attempt in ended}

    def _announce(self, released: list[int], planned: list[RunPlan], claims: list[Claim]) -> None:
        # Of what is planned, the commit of the delivery has notified them.
        if set(released) - {claim.delivery.delivery_id for claim in claims}:
            self._inbox.waker.wake()

    def _seconds_to_sleep(self, next_times: NextTimes, now: datetime) -> float:
        """Return the seconds until the next poll if nothing wakes the worker up before."""
        leases, suspects = self._leases, self._suspects
        others = [
            leases.seconds_to_renewal(),
            self._handlers.seconds_to_timeout(),
            suspects.seconds_to_change() if suspects.active else None,
        ]
        if next_times.suspect_at is not None and next_times.suspect_at > now:
            others.append((next_times.suspect_at - now).total_seconds())
        # What is due cannot be claimed now: an attempt that ends wakes the worker up.
        blocked = (
            self._is_held
            or not leases.capacity()
            or (suspects.active and suspects.blocks_ordinary(leases.runs.keys()))
        )
        ordinary, readings = next_times.apart()
        due_at = None if blocked else ordinary.due_at
        if (
            readings
            and not self._is_held
            and not (suspects.active and suspects.blocks_ordinary(leases.runs.keys()))
        ):
            seconds = self._seconds_to_reading(readings, now)
            # Not at once: another worker has locked what is due and was not claimed.
            others.append(None if seconds is None else max(seconds, READING_LOCKED_SECONDS))
        return self._pacing.seconds(due_at, now, others, idle=leases.idle_threads() > 0)

    def _drain(self, grace_seconds: float) -> None:
        """Release what was not started, and wait for running attempts until the grace period is over."""
        end, leases = time.monotonic() + grace_seconds, self._leases
        self._stopping = True
        if not (self._detached or self._pacing.failures):
            self._registration.stopping()  # others need not wait for what it would have planned
        # Released now and not at the end: other workers can run them during the grace period.
        leases.release_later(self._handlers.cancel_queued() + self._own_readers.cancel_queued())
        self._handlers.close()
        self._own_readers.close()
        pause = self._poll()
        while leases.runs or leases.to_release or self._unsettled:
            left = end - time.monotonic()
            if left <= 0 or self._detached or (self._is_outdated and not self._started()):
                break
            # At most half a second: an abandoned handler gives no wake-up, and the grace may end.
            self._sleep(min(0.5, pause, left))
            pause = self._poll()
        if leases.runs and not self._detached:
            text, count = "stopped with %d handlers still running; they are called again", len(leases.runs)
            logger.warning(text, count, extra=fields(count=count))
            self._settle_interrupted()
        if not (
            self._detached or self._pacing.failures
        ):  # without its storage, the worker must still stop in time
            self._maintenance.close()

    def _settle_interrupted(self) -> None:
        """Make runs due again whose handlers outlast the grace period, once this process has surely ended.

        Their leases are not left to expire: that would make suspects of them, although it is we who end them.
        """
        now = self._dispatcher.clock.now()
        results = [run.claim.interrupted(now, now + self._lease_time) for run in self._leases.runs.values()]
        try:
            with self._inbox.transaction(self._owner) as transaction:
                transaction.settle(results, self._dispatcher.clock.now)
        except BillhookError as error:
            text = "could not make interrupted runs due again, other workers take them over: %s"
            logger.error(text, error, extra=fields(cause=error))  # noqa: TRY400
