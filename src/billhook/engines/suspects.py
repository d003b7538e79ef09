"""When a loop begins a suspect: a run whose last attempt was lost with its worker, and may kill this one.

A suspect is begun beside nothing else, so that it takes nobody with it. Innocents come first: while there are
any, suspects wait for a third of a lease; then the loop claims nothing until what it has begun is done, runs
suspects one after another for a third of a lease, and goes on with the others for as long as these waited.
Nobody waits for longer than a lease for what does not end: neither a suspect for others, nor others for it.
Whoever takes longer is then beside others, and if it is lost with them that is noted: see `hanging`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from enum import Enum

from billhook.engines.holding import Lease

__all__ = ["Suspects", "Way"]


class Way(Enum):
    """What a turn may claim."""

    OTHERS = "others"
    NOTHING = "nothing"
    A_SUSPECT = "a suspect"


class Suspects:
    """For one loop, asked once a turn. Times are seconds of a monotonic clock."""

    def __init__(
        self, lease_seconds: float, threads: int, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._lease_seconds = lease_seconds
        self._period_seconds = lease_seconds / 3
        self._threads = threads
        self._monotonic = monotonic
        self._running: Lease | None = None
        self._running_until = 0.0
        self._due_since: float | None = None
        self._closed_at: float | None = None
        self._closes_until: float | None = None
        self._open_until = 0.0
        self._hanging: Set[Lease] = frozenset()

    @property
    def running(self) -> bool:
        """A suspect was begun here, and may be running."""
        return self._running is not None

    @property
    def hanging(self) -> Set[Lease]:
        """What took longer than it was waited for: suspects and others."""
        return self._hanging

    def shut(self, jobs: Set[Lease]) -> bool:
        """Others are kept out, as far as is known before the next `way`; `jobs` are as there."""
        return self._running in jobs or self._closed_at is not None

    def way(self, jobs: Set[Lease], *, suspect_due: bool, others_due: bool) -> Way:
        """What to claim now; `jobs` are those that are begun and not done."""
        now = self._monotonic()
        self._hanging &= jobs
        if self._running is not None:
            if self._running in jobs and now < self._running_until:
                return Way.NOTHING
            if self._running in jobs:
                self._hanging |= {self._running}
                self._open(now)
            self._running = None
        if not suspect_due or len(self._hanging) >= self._threads:
            self._open(now)
            return Way.OTHERS
        if self._closed_at is None:
            return self._way_while_open(jobs, others_due, now)
        if self._closes_until is not None and now >= self._closes_until:
            self._open(now)
            return Way.OTHERS
        if now - self._closed_at >= self._lease_seconds:
            self._hanging = frozenset(jobs)
        return Way.NOTHING if jobs - self._hanging else Way.A_SUSPECT

    def _way_while_open(self, jobs: Set[Lease], others_due: bool, now: float) -> Way:
        if not jobs and not others_due:
            return Way.A_SUSPECT
        if self._due_since is None:
            self._due_since = now
        if now < max(self._open_until, self._due_since + self._period_seconds):
            return Way.OTHERS
        self._closed_at = now
        return Way.NOTHING if jobs - self._hanging else Way.A_SUSPECT

    def _open(self, now: float) -> None:
        if self._closed_at is not None:
            self._open_until = now + max(self._period_seconds, now - self._closed_at)
        self._due_since = self._closed_at = self._closes_until = None

    def began(self, lease: Lease | None) -> None:
        """The suspect that was claimed; None when somebody else had it."""
        now = self._monotonic()
        if lease is None:
            self._open(now)
            return
        self._running, self._running_until = lease, now + self._lease_seconds
        if self._closed_at is not None and self._closes_until is None:
            self._closes_until = now + self._period_seconds

    def pause(self) -> float | None:
        """Seconds until `way` may say something else although nothing happened; None: it would not."""
        now = self._monotonic()
        if self._running is not None:
            return max(0.0, self._running_until - now)
        if self._closed_at is not None:
            return max(0.0, self._closed_at + self._lease_seconds - now)
        if self._due_since is not None:
            return max(0.0, max(self._open_until, self._due_since + self._period_seconds) - now)
        return None
