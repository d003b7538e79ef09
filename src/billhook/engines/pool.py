"""The threads that call handlers, and the watch over those that do not come back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import TypeVar

from billhook.engines.cycle import Cycle
from billhook.engines.reports import Report
from billhook.events import Event, UnknownEvent
from billhook.inbox import Claim

__all__ = ["Job", "Pool"]

T = TypeVar("T")

logger = logging.getLogger("billhook.engines")


@dataclass(slots=True)
class Job:
    """A claimed run, with its event if that was parsed already, and how long it is ours."""

    claim: Claim
    event: Event | UnknownEvent | None
    leased_until: datetime


class _Slot:
    """What one thread is doing."""

    __slots__ = ("job", "lost", "timeout_seconds", "until")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.until: float | None = None
        self.timeout_seconds = 0.0
        self.lost = False


class Pool:
    """`threads` daemon threads.

    Python cannot stop a thread: one that is past its time is left to itself and replaced.
    """

    def __init__(self, cycle: Cycle, threads: int, notify: Callable[[], None]) -> None:
        """`notify` is called from any thread whenever a report is ready."""
        self._cycle = cycle
        self._notify = notify
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._expired: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._slots: list[_Slot] = []
        for _ in range(threads):
            self._add_thread()

    def submit(self, job: Job) -> None:
        """Have a job done by the next free thread."""
        self._jobs.put(job)

    def reports(self) -> list[Report]:
        """What was finished, or given up, since the last look."""
        return self._overdue() + _drain(self._reports)

    def expired(self) -> list[Job]:
        """Jobs that were not begun, because their lease had run out."""
        return _drain(self._expired)

    def next_timeout(self) -> float | None:
        """Seconds until the next running job is overdue; None when none has a limit."""
        with self._lock:
            ends = [slot.until for slot in self._slots if slot.until is not None]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def drop_waiting(self) -> list[Job]:
        """Take back the jobs that no thread has begun."""
        return [job for job in _drain(self._jobs) if job is not None]

    def close(self) -> None:
        """Let each thread end after what it does now."""
        for _ in self._slots:
            self._jobs.put(None)

    def _add_thread(self) -> None:
        slot = _Slot()
        self._slots.append(slot)
        threading.Thread(target=self._work, args=(slot,), name="billhook-handler", daemon=True).start()

    def _work(self, slot: _Slot) -> None:
        while (job := self._jobs.get()) is not None:
            if self._cycle.clock.now() >= job.leased_until:
                self._expired.put(job)  # we slept past our lease: somebody else may have called by now
                self._notify()
                continue
            report = self._attempt(slot, job)
            with self._lock:
                if slot.lost:
                    return  # given up meanwhile: another thread has this one's place
                slot.job = slot.until = None
            self._reports.put(report)
            self._notify()

    def _attempt(self, slot: _Slot, job: Job) -> Report:
        try:
            seconds = self._cycle.timeout_seconds(job.claim)
            with self._lock:
                slot.job = job
                slot.timeout_seconds = seconds or 0.0
                slot.until = None if seconds is None else time.monotonic() + seconds
            return self._cycle.attempt(job.claim, job.event)
        except BaseException as error:
            # Not the handler's error, which attempt() reports: ours. The run must not stay claimed for it.
            logger.exception("the attempt of %s broke", job.claim.handler)
            return self._cycle.broken(job.claim, error)

    def _overdue(self) -> list[Report]:
        now = time.monotonic()
        with self._lock:
            late = [slot for slot in self._slots if slot.until is not None and slot.until <= now]
            for slot in late:
                slot.lost = True
                self._slots.remove(slot)
        reports = []
        for slot in late:
            self._add_thread()
            if slot.job is not None:
                logger.error("handler %s is past its time and left behind", slot.job.claim.handler)
                reports.append(self._cycle.overdue(slot.job.claim, slot.timeout_seconds))
        return reports


def _drain(queue: SimpleQueue[T]) -> list[T]:
    """All that is in a queue now."""
    items: list[T] = []
    try:
        while True:
            items.append(queue.get_nowait())
    except Empty:
        return items
