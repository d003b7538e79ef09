"""The threads that call handlers, and the watch over those that do not come back."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from billhook.engines.cycle import Cycle
from billhook.engines.jobs import Job, Slot
from billhook.engines.reports import Report

__all__ = ["Job", "Pool"]

T = TypeVar("T")

logger = logging.getLogger("billhook.engines")


class Pool:
    """`threads` daemon threads.

    Python cannot stop a thread: one that is past its time is left to itself and replaced.
    """

    def __init__(
        self,
        cycle: Cycle,
        threads: int,
        notify: Callable[[], None],
        *,
        hurry: Callable[[], None] = lambda: None,
    ) -> None:
        """`notify` is called from any thread whenever a report is ready.

        `hurry`, when a job begins whose time will be over sooner than `next_timeout` has said.
        """
        self._cycle = cycle
        self._notify = notify
        self._hurry = hurry
        self._told = math.inf
        self._threads = threads
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._expired: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._slots: list[Slot] = []
        self._left: list[Slot] = []
        self._closed = False
        self._starved = False
        self._fill()

    def submit(self, job: Job) -> None:
        """Have a job done by the next free thread."""
        self._jobs.put(job)

    def reports(self) -> list[Report]:
        """What was finished, or given up, since the last look."""
        self._give_up_late()
        self._fill()
        return _drain(self._reports)

    def expired(self) -> list[Job]:
        """Jobs that nobody will report: their lease had run out before they were begun, or we broke."""
        return _drain(self._expired)

    def next_timeout(self) -> float | None:
        """Seconds until the next running job is overdue; None when none has a limit."""
        with self._lock:
            self._told = min([slot.until for slot in self._slots if slot.until is not None], default=math.inf)
        return None if self._told == math.inf else max(0.0, self._told - time.monotonic())

    def drop_waiting(self, keep: int = 0) -> list[Job]:
        """Take back the jobs that no thread has begun, but for the first so many."""
        waiting = [job for job in _drain(self._jobs) if job is not None]
        for job in waiting[:keep]:
            self._jobs.put(job)
        return waiting[keep:]

    def exhausted(self, left_behind_limit: float) -> bool:
        """So many threads were left behind and run still, or the system has none at all for us."""
        with self._lock:
            self._left = [slot for slot in self._left if slot.thread is not None and slot.thread.is_alive()]
            return len(self._left) >= left_behind_limit or self._starved

    def close(self) -> None:
        """Let each thread end after what it does now."""
        self._closed = True
        for _ in self._slots:
            self._jobs.put(None)

    def _fill(self) -> None:
        """Start threads until there are as many as there should be, or the system gives no more."""
        self._starved = False
        while len(self._slots) < self._threads and not self._closed:
            slot = Slot()
            slot.thread = threading.Thread(
                target=self._work, args=(slot,), name="billhook-handler", daemon=True
            )
            try:
                slot.thread.start()
            except RuntimeError as error:
                logger.error("%d of %d threads: %s", len(self._slots), self._threads, error)  # noqa: TRY400
                self._starved = not self._slots
                return
            with self._lock:
                self._slots.append(slot)

    def _work(self, slot: Slot) -> None:
        try:
            while not slot.lost and (job := self._jobs.get()) is not None:
                slot.job = job
                self._do(slot, job)
        except BaseException:
            # Not the handler's, for that is reported: ours, or the machine's. The thread's place is filled
            # again, and its claim left to run out, rather than held for ever.
            logger.exception("a thread that calls handlers broke")
            with self._lock:
                if slot in self._slots:
                    self._slots.remove(slot)
            if slot.job is not None and not slot.lost:
                self._expired.put(slot.job)
            with suppress(Exception):
                self._notify()

    def _do(self, slot: Slot, job: Job) -> None:
        if self._cycle.clock.now() >= job.leased_until:
            slot.job = None
            self._expired.put(job)  # we slept past our lease: somebody else may have called by now
        else:
            report = self._attempt(slot, job)
            with self._lock:
                if slot.lost:
                    return  # given up meanwhile: another thread has this one's place
                slot.job = slot.until = None
            self._reports.put(report)
        self._notify()

    def _attempt(self, slot: Slot, job: Job) -> Report:
        try:
            seconds = self._cycle.timeout_seconds(job.claim)
            with self._lock:
                slot.timeout_seconds = seconds or 0.0
                slot.until = None if seconds is None else time.monotonic() + seconds
                sooner = slot.until is not None and slot.until < self._told
            if sooner:
                self._hurry()
            return self._cycle.attempt(job.claim, job.event)
        except BaseException as error:
            # Not the handler's error, which attempt() reports: ours. The run must not stay claimed for it.
            logger.exception("the attempt of %s broke", job.claim.handler)
            return self._cycle.broken(job.claim, error)

    def _give_up_late(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = [(slot, slot.job) for slot in self._slots if slot.until is not None and slot.until <= now]
        for slot, job in late:
            if job is None:
                continue
            report = self._cycle.overdue(job.claim, slot.timeout_seconds)
            with self._lock:
                if slot.job is not job:
                    continue  # it came back just now
                slot.lost = True
                self._slots.remove(slot)
                self._left.append(slot)
            logger.error("handler %s is past its time and left behind", job.claim.handler)
            self._reports.put(report)


def _drain(queue: SimpleQueue[T]) -> list[T]:
    """All that is in a queue now."""
    items: list[T] = []
    try:
        while True:
            items.append(queue.get_nowait())
    except Empty:
        return items
