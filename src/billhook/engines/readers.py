"""The readers: threads that read events of types of the user's own, apart from those of handlers.

A model that hangs takes no handler's thread. Of the readings of one name a worker holds a few, so that a
thread is left for other types, and more while they are quick. They are leased as runs of handlers are, and
not counted among these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

from billhook.engines.dispatcher import AttemptResult, Dispatcher
from billhook.engines.handler_pool import ClaimedRun, HandlerPool

READERS = 8
FIRST_OF_NAME = 3
"""How many readings of one name are held at once, unless the last ones were quick. So threads are left for
others while all readings of two names hang."""
QUICK_SECONDS = 0.01
MOST_HELD = 64
MAX_ABANDONED_READERS = 8
"""With as many readers whose model never returned, the process reads nothing more, and should be replaced."""


class Readers:
    """The readers of one worker, started with the first reading; for the thread that polls."""

    def __init__(self, dispatcher: Dispatcher, wake: Callable[[], None]) -> None:
        self._dispatcher, self._wake = dispatcher, wake
        self._pool: HandlerPool | None = None
        self.started = False
        """Whether there was a reading: until then it has nothing, and need not be asked."""
        self._most: dict[str, int] = {}

    def submit(self, run: ClaimedRun) -> None:
        """Queue a reading for the next free thread."""
        if self._pool is None:
            self._pool = HandlerPool(self._dispatcher, READERS, self._wake, "billhook-reader")
            self.started = True
        self._pool.submit(run)

    def finished(self) -> tuple[list[AttemptResult], list[ClaimedRun]]:
        """Return the readings that ended or timed out since the last call, and those that never started."""
        if self._pool is None:
            return [], []
        ended, expired = self._pool.finished()
        for attempt in ended:
            name, seconds = attempt.delivery.handler, attempt.run_result.duration_seconds
            quick = seconds is not None and seconds < QUICK_SECONDS
            self._most[name] = min(MOST_HELD, 2 * self._most_of(name)) if quick else FIRST_OF_NAME
        return ended, expired

    def _most_of(self, name: str) -> int:
        return self._most.get(name, FIRST_OF_NAME)

    def capacity(self, held: Iterable[ClaimedRun]) -> Callable[[str], int]:
        """Return how many more readings may be claimed of each name, beside those that are `held`."""
        if self._pool is not None and self._pool.exhausted(MAX_ABANDONED_READERS):
            return lambda name: 0
        number = Counter(run.claim.handler for run in held)
        left = MOST_HELD - number.total()
        return lambda name: max(0, min(left, self._most_of(name) - number[name]))

    def exhausted(self, max_abandoned_threads: float) -> bool:
        """Return whether too many readers still run that were abandoned, or there is no thread at all."""
        # Where the process cannot be replaced, it goes on without reading.
        most = MAX_ABANDONED_READERS if math.isfinite(max_abandoned_threads) else math.inf
        return self._pool is not None and self._pool.exhausted(most)

    def cancel_queued(self, keep: int = 0) -> list[ClaimedRun]:
        """Remove and return the readings that no thread has begun, except the first `keep` of them."""
        return [] if self._pool is None else self._pool.cancel_queued(keep)

    def close(self) -> None:
        """End each thread after its current reading."""
        if self._pool is not None:
            self._pool.close()
