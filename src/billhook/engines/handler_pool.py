"""The pool of threads that call handlers, with time-outs."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from queue import Empty, SimpleQueue

from billhook.basics.concurrency import run_in_copy, tell_of_crash
from billhook.basics.type_names import is_reading
from billhook.engines.dispatcher import AttemptResult, Dispatcher
from billhook.engines.reading import READING_SECONDS
from billhook.engines.reporting import delivery_fields
from billhook.events import Event, UnknownEvent
from billhook.events.own_models import is_own
from billhook.handlers import CANCEL_SECONDS, EVENT_LOOPS, Handler
from billhook.inbox import Claim, Lease
from billhook.logs import fields

logger = logging.getLogger("billhook.engines")


@dataclass(slots=True)
class ClaimedRun:
    """A claimed run on its way to a handler, with its event if the same poll has parsed it."""

    claim: Claim
    lease: Lease
    leased_until: datetime
    event: Event | UnknownEvent | None


@dataclass(slots=True, eq=False)
class _HandlerThread:
    """One thread of the pool and what it is doing; fields change under the pool's lock."""

    thread: threading.Thread | None = None
    run: ClaimedRun | None = None
    handler: Handler | None = None
    timeout_at: float | None = None
    timeout_seconds: float = 0.0
    in_model: bool = False
    abandoned: bool = False


@dataclass(eq=False, repr=False)
class HandlerPool:
    """A fixed number of daemon threads.

    Python cannot stop a thread: one whose handler is past its time-out is abandoned and replaced. An async
    handler is cancelled first, and keeps its thread if that ends it. The threads call `wake` when an attempt
    has ended, and when one starts that times out sooner than `seconds_to_timeout` said last.
    """

    dispatcher: Dispatcher
    size: int
    wake: Callable[[], None]
    name: str = "billhook-handler"

    def __post_init__(self) -> None:
        self._announced_deadline = math.inf
        # One queue for all threads: a slow handler delays no run that another thread could take.
        self._queue: SimpleQueue[ClaimedRun | None] = SimpleQueue()
        # Threads append, and only the owner of the pool pops: a deque needs no lock for that.
        self._finished: deque[AttemptResult] = deque()
        self._expired: deque[ClaimedRun] = deque()
        self._lock = threading.Lock()
        self._threads: list[_HandlerThread] = []
        self._abandoned: list[_HandlerThread] = []
        self._closed = False
        self._starved = False
        self._start_threads()

    def submit(self, run: ClaimedRun) -> None:
        """Queue a run for the next free thread."""
        self._queue.put(run)

    def finished(self) -> tuple[list[AttemptResult], list[ClaimedRun]]:
        """Return the results of attempts that ended or timed out since the last call, and runs without one.

        Runs without a result are those whose lease expired before they started, or whose thread crashed.
        """
        now = time.monotonic()
        with self._lock:
            late = [
                (thread, thread.run)
                for thread in self._threads
                if thread.timeout_at is not None and thread.timeout_at <= now and thread.run is not None
            ]
        for thread, run in late:
            self._abandon(thread, run)
        # Places of abandoned and crashed threads; also another try after the system refused one.
        if len(self._threads) < self.size:
            self._start_threads()
        attempts = [self._finished.popleft() for _ in range(len(self._finished))]
        return attempts, [self._expired.popleft() for _ in range(len(self._expired))]

    def seconds_to_timeout(self) -> float | None:
        """Return the seconds until the next running attempt times out; None if none has a time-out."""
        with self._lock:
            deadlines = [thread.timeout_at for thread in self._threads if thread.timeout_at is not None]
            self._announced_deadline = min(deadlines, default=math.inf)
        if self._announced_deadline == math.inf:
            return None
        return max(0.0, self._announced_deadline - time.monotonic())

    def cancel_queued(self, keep: int = 0) -> list[ClaimedRun]:
        """Remove and return the queued runs, except the first `keep` of them."""
        # Threads may take runs meanwhile. Each run is then either started or returned, never both.
        waiting = []
        with suppress(Empty):
            while True:
                run = self._queue.get_nowait()
                if run is not None:
                    waiting.append(run)
        for run in waiting[:keep]:
            self._queue.put(run)
        return waiting[keep:]

    def exhausted(self, max_abandoned_threads: float) -> bool:
        """Return whether too many abandoned threads still run, or the system gives us no thread at all."""
        with self._lock:
            # An abandoned handler may return after all, and its thread ends.
            self._abandoned = [
                thread for thread in self._abandoned if thread.thread is not None and thread.thread.is_alive()
            ]
            return len(self._abandoned) >= max_abandoned_threads or self._starved

    def close(self) -> None:
        """End each thread after its current attempt."""
        self._closed = True
        for _ in self._threads:  # each takes one, and ends
            self._queue.put(None)

    def _start_threads(self) -> None:
        # Daemons: an abandoned handler must not keep the process from exiting.
        self._starved = False
        while len(self._threads) < self.size and not self._closed:
            thread = _HandlerThread()
            thread.thread = threading.Thread(target=self._work, args=(thread,), name=self.name, daemon=True)
            try:
                thread.thread.start()
            except RuntimeError as error:
                running = len(self._threads)
                logger.error(  # noqa: TRY400 - the text says it all
                    "could not start %s thread (%d of %d running): %s",
                    self.name.removeprefix("billhook-"),
                    running,
                    self.size,
                    error,
                    extra=fields(cause=error, count=running),
                )
                # With some threads the worker goes on, slower; with none it must be replaced.
                self._starved = not running
                return
            with self._lock:
                self._threads.append(thread)

    def _work(self, thread: _HandlerThread) -> None:
        try:
            while not thread.abandoned and (run := self._queue.get()) is not None:
                thread.run = run
                run_in_copy(self.dispatcher.startup_context, self._execute, thread, run)
        except BaseException as error:
            # An error of ours or of the machine: a handler's error is part of a result. The thread is
            # replaced, and its lease left to expire rather than renewed for ever.
            with self._lock:
                if thread in self._threads:
                    self._threads.remove(thread)
            if thread.run is not None and not thread.abandoned:
                self._expired.append(thread.run)
            with suppress(Exception):
                self.wake()
            text = "a %s thread crashed; it is replaced"
            logger.exception(text, self.name.removeprefix("billhook-"), extra=fields(cause=error))
            if isinstance(error, Exception):
                tell_of_crash(self.name, error)
        finally:
            EVENT_LOOPS.close()

    def _execute(self, thread: _HandlerThread, run: ClaimedRun) -> None:
        claim, dispatcher = run.claim, self.dispatcher
        if dispatcher.clock.now() >= run.leased_until:
            thread.run = None
            # This machine slept past the lease: another worker may have called the handler by now.
            self._expired.append(run)
            self.wake()
            return
        try:
            result = self._read(thread, claim) if is_reading(claim.handler) else self._call(thread, run)
        except BaseException as error:
            # Not the handler's error, which attempt() returns, but ours: the run must not stay claimed.
            text = "internal error while calling handler %s"
            logger.exception(text, claim.handler, extra=delivery_fields(claim, cause=error))
            result = dispatcher.crashed(claim, error)
        with self._lock:
            if thread.abandoned:
                return  # timed out meanwhile: that result is reported, and another thread has this place
            thread.run = thread.timeout_at = None
        self._finished.append(result)
        self.wake()

    def _read(self, thread: _HandlerThread, claim: Claim) -> AttemptResult:
        self._set_timeout(thread, None, READING_SECONDS, in_model=True)
        # A closed pool has been asked to end: then SystemExit and the like are the process's.
        return self.dispatcher.reading.attempt(claim, stopping=lambda: self._closed)

    def _call(self, thread: _HandlerThread, run: ClaimedRun) -> AttemptResult:
        dispatcher, claim = self.dispatcher, run.claim
        handler, event = dispatcher.find_handler(claim), None
        if run.event is None and is_own(claim.delivery.event_type):
            self._set_timeout(thread, handler, READING_SECONDS, in_model=True)
            event = dispatcher.read_again(claim)
            with self._lock:
                if thread.abandoned:
                    # Another thread may call the handler by now.
                    return dispatcher.timed_out(claim, handler, READING_SECONDS, in_model=True)
                thread.timeout_at = None
        if handler is not None and handler.timeout_seconds is not None:
            self._set_timeout(thread, handler, handler.timeout_seconds)
        # Not by its truth: that may be the user's code.
        return dispatcher.attempt(claim, run.event if event is None else event, handler)

    def _set_timeout(
        self, thread: _HandlerThread, handler: Handler | None, seconds: float, *, in_model: bool = False
    ) -> None:
        # An async handler is cancelled; it is abandoned if that does not end it.
        grace = CANCEL_SECONDS if handler is not None and handler.is_async and not in_model else 0.0
        with self._lock:
            thread.handler, thread.timeout_seconds, thread.in_model = handler, seconds, in_model
            thread.timeout_at = time.monotonic() + seconds + grace
            earlier = thread.timeout_at < self._announced_deadline
        if earlier and not in_model:  # that is so long that a poll comes before it
            self.wake()

    def _abandon(self, thread: _HandlerThread, run: ClaimedRun) -> None:
        """Report a thread's attempt as timed out, and give its place to another thread."""
        # Made outside the lock, in which the threads report their results; so it is checked again.
        handler, seconds = thread.handler, thread.timeout_seconds
        result = self.dispatcher.timed_out(run.claim, handler, seconds, in_model=thread.in_model)
        with self._lock:
            if thread.run is not run:
                return  # it returned just now
            thread.abandoned = True
            self._threads.remove(thread)
            self._abandoned.append(thread)
        what = run.claim.handler if is_reading(run.claim.handler) else f"handler {run.claim.handler}"
        # No error: that is a run which is dead, as it is after the last attempt.
        extra = delivery_fields(run.claim, cause="timeout", duration=thread.timeout_seconds)
        logger.warning("%s is past its time-out; its thread is abandoned", what, extra=extra)
        self._finished.append(result)
