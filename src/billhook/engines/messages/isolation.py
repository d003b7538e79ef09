"""Keep suspects apart: a run that may end its process is the only one there while it executes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager

from billhook.engines.serial import SerialWorker
from billhook.inbox import Lease


class Isolation:
    """Lets ordinary runs execute side by side, or a suspect alone, in the threads of one process.

    Neither waits longer than a lease time for one that does not end.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._seconds = lease_seconds
        self._changed = threading.Condition()
        self._inside = 0
        self._alone: list[SerialWorker] = []
        self._alone_until = 0.0

    def suspects(self) -> Set[Lease]:
        """Return the leases of suspects that are running: a run that starts now has waited for them."""
        return frozenset(lease for worker in list(self._alone) for lease in worker.held())

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Be inside together with others, but for suspects."""
        with self._changed:
            self._wait_while_alone()
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self, worker: SerialWorker) -> Iterator[None]:
        """Be inside alone, once all others have left; new ones wait meanwhile."""
        with self._changed:
            self._wait_while_alone()
            self._alone.append(worker)
            self._alone_until = time.monotonic() + self._seconds
            self._changed.wait_for(lambda: not self._inside, self._seconds)
            self._alone_until = time.monotonic() + self._seconds
        try:
            yield
        finally:
            with self._changed:
                self._alone.remove(worker)
                self._changed.notify_all()

    def _wait_while_alone(self) -> None:
        while self._alone and (left := self._alone_until - time.monotonic()) > 0:
            self._changed.wait(left)
