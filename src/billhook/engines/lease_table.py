"""The claims that one worker holds: how many it may hold, and when their leases are renewed or released."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable
from datetime import datetime

from billhook.engines.handler_pool import ClaimedRun
from billhook.inbox import Lease

WINDOW_FACTOR = 128
"""Claims held per thread at most, while handlers return faster than the inbox commits."""
WINDOW_LIMIT = 2_000


class LeaseTable:
    """The claimed runs of one worker, by lease: few while handlers are slow, so others can claim more."""

    def __init__(self, threads: int, lease_seconds: float, held: set[Lease]) -> None:
        """`held` are the leases of all workers of this process, among which the table keeps its own."""
        self._held = held
        self.runs: dict[Lease, ClaimedRun] = {}
        self.readings: set[Lease] = set()
        """Readings. Readers execute them, in threads of their own, so they are not counted in the window."""
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
        self.orphan_check_at = math.inf
        """When to look for orphaned claims, by the monotonic clock: at once after a failure, and later."""

    def capacity(self, settling: Iterable[Lease] = (), most: int | None = None) -> int:
        """Return how many more runs it may hold, once the results of `settling` are written.

        It may hold `most` in all; by default as many as the window.
        """
        held = len(self.runs) - len(self.runs.keys() & settling)
        if self.readings:
            held -= len(self.readings.difference(settling))
        return max(0, (self.window if most is None else most) - held)

    def idle_threads(self, settling: Iterable[Lease] = ()) -> int:
        """Return how many threads are free, once the results of `settling` are written."""
        return self.capacity(settling, self._threads)

    def add(self, run: ClaimedRun, *, reading: bool = False) -> None:
        """Hold a run whose claim is committed; a `reading` outside the window."""
        if not self.runs:
            # A third: two renewals may fail before a lease expires. One time for the whole table, counted
            # from its oldest claim, so that a renewal is one statement.
            self._renew_at = time.monotonic() + self._third_seconds
        self.runs[run.lease] = run
        self._held.add(run.lease)
        if reading:
            self.readings.add(run.lease)

    def remove(self, leases: Iterable[Lease]) -> None:
        """Forget leases that are settled or expired."""
        for lease in leases:
            if self.runs.pop(lease, None) is not None:
                self._held.discard(lease)
                if lease in self.readings:
                    self.readings.discard(lease)
                else:
                    self.finished_since_renewal += 1

    def release_later(self, runs: Iterable[ClaimedRun]) -> None:
        """Release runs that were not started in the next transaction, for other workers."""
        for run in runs:
            self.runs.pop(run.lease, None)
            self._held.discard(run.lease)
            self.readings.discard(run.lease)
            self.to_release.append(run.lease)

    def abandon(self) -> None:
        """Give up what is still held: any worker may claim it once its lease has ended."""
        self._held.difference_update(self.runs)

    def record_commit(
        self,
        settled: Collection[Lease],
        renewed: Iterable[Lease] | None,
        leased_until: datetime,
        *,
        orphans_checked: bool,
    ) -> None:
        """Record a committed transaction: forget what it released, and the leases of the results in it.

        `settled` has also leases that were lost to another worker: they are not held any more. `renewed`
        is None if the leases were not due for renewal. The window is doubled if more than a quarter of it
        finished since the last commit: handlers are quick.
        """
        self.to_release = []
        if orphans_checked:
            self._orphan_checks -= 1
            self.orphan_check_at = time.monotonic() + self._third_seconds if self._orphan_checks else math.inf
        if renewed is not None:
            for lease in renewed:  # one that is not among them was lost to another worker
                self.runs[lease].leased_until = leased_until
            self._renew_at = time.monotonic() + self._third_seconds
            self.finished_since_renewal = 0
        # A quarter, because it also holds what finishes and what starts while the next commit is under way.
        # At first in any case: with one queued run per thread, no thread waits for the next claim.
        elif (calls := len(settled) - len(self.readings.intersection(settled))) * 4 > self.window or (
            calls and self.window == self._threads
        ):
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
        self._orphan_checks, self.orphan_check_at = 2, 0.0
