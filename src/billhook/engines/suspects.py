"""Decide when to start a suspect: a run whose last attempt ended with its worker's death.

It may end this worker too, so it runs alone, and no ordinary run is lost with it. Ordinary runs come first:
while any are due, suspects wait for a third of the lease time. Then the worker claims nothing until the
attempts it has started are done, runs suspects one after another for a third of the lease time, and claims
ordinary runs again for as long as these waited. With a lease of 30 s, and both kinds due all the time:

     0 s  a suspect becomes due; the worker goes on claiming ordinary runs       ClaimMode.ORDINARY
    10 s  it claims nothing until the attempts that it has started are done      ClaimMode.NOTHING
    12 s  these are done: it claims one suspect after another, each alone        ClaimMode.A_SUSPECT
    22 s  it claims ordinary runs again until 34 s, for these have waited 12 s   ClaimMode.ORDINARY

No wait is longer than the lease time: neither that of suspects for ordinary runs, nor that of ordinary runs
for a suspect. An attempt that takes longer is `overlong`: from then on it runs beside others, and the inbox
stores that, so that a loss is not blamed on it alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from enum import Enum

from billhook.inbox import Lease


class ClaimMode(Enum):
    """What a poll may claim."""

    ORDINARY = "ordinary"
    NOTHING = "nothing"
    A_SUSPECT = "a suspect"


@dataclass(eq=False, repr=False)
class SuspectPolicy:
    """The decision for one worker, made once a poll. Times are seconds of a monotonic clock."""

    lease_seconds: float
    threads: int
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._period_seconds = self.lease_seconds / 3
        self.overlong: Set[Lease] = frozenset()
        """Attempts, of suspects and of ordinary runs, that took longer than the lease time."""
        self._running: Lease | None = None
        self._running_until = 0.0
        # While suspects are due: since when, since when ordinary runs wait for them, and until when.
        self._due_since: float | None = None
        self._blocked_since: float | None = None
        self._blocked_until: float | None = None
        self._ordinary_until = 0.0
        self.active = False
        """Whether a suspect was due or is running, so that `next_mode` may decide otherwise than ORDINARY."""

    @property
    def running(self) -> bool:
        """Whether a suspect was started and may still be running."""
        return self._running is not None

    def blocks_ordinary(self, started: Set[Lease]) -> bool:
        """Return whether other runs are held back, as known before the next `next_mode`."""
        return self._running in started or self._blocked_since is not None

    def next_mode(self, started: Set[Lease], *, suspect_due: bool, ordinary_due: bool) -> ClaimMode:
        """Decide what to claim now; `started` are the leases of attempts that are not done."""
        mode = self._next_mode(started, self.monotonic(), suspect_due=suspect_due, ordinary_due=ordinary_due)
        self._note_active()
        return mode

    def _note_active(self) -> None:
        self.active = bool(self.overlong) or self._running is not None or self._due_since is not None

    def _next_mode(
        self, started: Set[Lease], now: float, *, suspect_due: bool, ordinary_due: bool
    ) -> ClaimMode:
        # The leases of attempts that have ended are removed: the worker must not wait for them or count them.
        self.overlong &= started
        if self._running is not None:
            if self._running in started and now < self._running_until:
                return ClaimMode.NOTHING
            if self._running in started:
                self.overlong |= {self._running}
                self._unblock(now)
            self._running = None
        # With every thread in an overlong attempt, a suspect could not start anyway.
        if not suspect_due or len(self.overlong) >= self.threads:
            if self._due_since is not None:
                self._unblock(now)
            return ClaimMode.ORDINARY
        if self._blocked_since is None:
            return self._mode_while_unblocked(started, ordinary_due, now)
        if self._blocked_until is not None and now >= self._blocked_until:
            self._unblock(now)
            return ClaimMode.ORDINARY
        if now - self._blocked_since >= self.lease_seconds:  # waited long enough for what was started
            self.overlong = frozenset(started)
        return ClaimMode.NOTHING if started - self.overlong else ClaimMode.A_SUSPECT

    def _mode_while_unblocked(self, started: Set[Lease], ordinary_due: bool, now: float) -> ClaimMode:
        # An idle worker has nothing to lose: it takes a suspect at once.
        if not started and not ordinary_due:
            return ClaimMode.A_SUSPECT
        if self._due_since is None:
            self._due_since = now
        if now < max(self._ordinary_until, self._due_since + self._period_seconds):
            return ClaimMode.ORDINARY
        self._blocked_since = now
        return ClaimMode.NOTHING if started - self.overlong else ClaimMode.A_SUSPECT

    def _unblock(self, now: float) -> None:
        # Ordinary runs get as long as they waited: suspects never take more than half of the time.
        if self._blocked_since is not None:
            self._ordinary_until = now + max(self._period_seconds, now - self._blocked_since)
        self._due_since = self._blocked_since = self._blocked_until = None

    def started(self, lease: Lease | None) -> None:
        """Record the suspect that was claimed; None if another worker had claimed it first."""
        now = self.monotonic()
        if lease is None:
            self._unblock(now)
        else:
            self._running, self._running_until = lease, now + self.lease_seconds
            if self._blocked_since is not None and self._blocked_until is None:
                self._blocked_until = now + self._period_seconds
        self._note_active()

    def seconds_to_change(self) -> float | None:
        """Return the seconds until `next_mode` may change by time alone; None if it would not."""
        now = self.monotonic()
        if self._running is not None:
            return max(0.0, self._running_until - now)
        if self._blocked_since is not None:
            return max(0.0, self._blocked_since + self.lease_seconds - now)
        if self._due_since is not None:
            return max(0.0, max(self._ordinary_until, self._due_since + self._period_seconds) - now)
        return None
