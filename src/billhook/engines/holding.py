"""What one loop holds: its claims, how many it may have, and the events that it has read already."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime

from billhook.engines.jobs import Job
from billhook.engines.reports import Planned
from billhook.events import Event, UnknownEvent
from billhook.inbox import Claim

__all__ = ["Events", "Holding", "Lease"]

WINDOW_FACTOR = 32  # claims held per thread at most, while handlers return faster than the inbox commits
WINDOW_LIMIT = 2_000  # claims beside those that have a thread

EVENTS_LIMIT = 2_000

Lease = tuple[int, int]
"""A run's id, and the token of the claim."""


class Events:
    """Events of what was planned here, so that a claim that follows need not read the body again."""

    def __init__(self) -> None:
        self._events: dict[tuple[int, str], Event | UnknownEvent] = {}

    def remember(self, planned: Sequence[Planned], won: Collection[int]) -> None:
        """Those that this loop was the one to plan."""
        if len(self._events) > EVENTS_LIMIT:  # planned here, claimed elsewhere: let them go
            self._events.clear()
        mine = set(won)
        for one in planned:
            if one.event is not None and one.plan.handlers and one.stored.delivery_id in mine:
                self._events[one.stored.identity] = one.event

    def jobs(self, claims: Sequence[Claim]) -> Iterator[Job]:
        """The claims, with their events where they are known; several may be of one delivery."""
        for claim in claims:
            yield Job(claim, self._events.get(claim.delivery.identity), claim.leased_until)
        for claim in claims:
            self._events.pop(claim.delivery.identity, None)


class Holding:
    """The claims of one loop, by lease. Few while handlers are slow, so that other workers get them."""

    def __init__(self, threads: int, lease_seconds: float) -> None:
        self.jobs: dict[Lease, Job] = {}
        self.unwanted: list[Lease] = []
        """Claimed and never begun, to be given back."""
        self.window = threads
        self.pace = 0
        """How many ended since the last renewal: as many as may be begun until the next."""
        self._threads = threads
        self._third_seconds = lease_seconds / 3
        self._renew_at = 0.0
        self._looks = 0
        self._look_at = 0.0

    @property
    def full(self) -> bool:
        """No more may be claimed."""
        return len(self.jobs) >= self.window

    @property
    def room(self) -> int:
        """How many may be claimed."""
        return max(0, self.window - len(self.jobs))

    def idle(self, done: Collection[Lease] = ()) -> int:
        """How many threads have nothing to do, once those of `done` are settled."""
        return max(0, self._threads - len(self.jobs) + sum(lease in self.jobs for lease in done))

    # --- leases ---------------------------------------------------------------------------------------

    def take(self, job: Job) -> None:
        """A claim was committed."""
        if not self.jobs:
            self._renew_at = time.monotonic() + self._third_seconds
        self.jobs[job.lease] = job

    def drop(self, leases: Iterable[Lease]) -> None:
        """These are ours no longer: settled, or run out."""
        for lease in leases:
            if self.jobs.pop(lease, None) is not None:
                self.pace += 1

    def give_back(self, jobs: Iterable[Job]) -> None:
        """These were never begun, and somebody else shall have them."""
        for job in jobs:
            self.jobs.pop(job.lease, None)
            self.unwanted.append(job.lease)

    def must_renew(self) -> bool:
        """A third of the lease is over."""
        return bool(self.jobs) and time.monotonic() >= self._renew_at

    def begin_renewal(self) -> None:
        """Before it: whoever has been slow for so long claims no more than there are threads."""
        self.window = self._threads

    def renewed(self, leases: Iterable[Lease], leased_until: datetime) -> None:
        """The renewal was committed; those that it did not find are somebody else's by now."""
        for lease in leases:
            self.jobs[lease].leased_until = leased_until
        self._renew_at = time.monotonic() + self._third_seconds
        self.pace = 0

    def grow(self) -> None:
        """All that may be held is held, and ends faster than it is settled: hold more."""
        if self.full:
            most = max(self._threads, min(self._threads * WINDOW_FACTOR, WINDOW_LIMIT))
            self.window = min(self.window * 2, most)

    def renewal_in(self) -> float | None:
        """Seconds until the next renewal; None when nothing is held."""
        return max(0.0, self._renew_at - time.monotonic()) if self.jobs else None

    # --- claims that nobody here knows of -------------------------------------------------------------

    def doubt(self) -> None:
        """A transaction failed: its claims may be committed for all that, and it may still be under way."""
        self._looks, self._look_at = 2, 0.0

    @property
    def doubtful(self) -> bool:
        """Time to look in the inbox for claims of ours that are not here: at once, and once more later."""
        return self._looks > 0 and time.monotonic() >= self._look_at

    def looked(self) -> None:
        """What was found was given back."""
        self._looks -= 1
        self._look_at = time.monotonic() + self._third_seconds
