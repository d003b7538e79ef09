"""The thread engine: the loop in a thread of the app's own process, begun after any fork."""

from __future__ import annotations

import os
import threading

from billhook.engines.cycle import Cycle
from billhook.engines.loop import Loop
from billhook.inbox import Inbox

__all__ = ["ThreadEngine"]

THREADS = 4
"""Handlers that run at once beside the web threads; `billhook worker --threads` is for more."""
GRACE_SECONDS = 5.0
"""How long running handlers are waited for at the end of a web process."""


class ThreadEngine:
    """Starts at `start` or at the first delivery, once in each process."""

    def __init__(
        self, inbox: Inbox, cycle: Cycle, *, lease_seconds: float, retention_days: float = 30.0
    ) -> None:
        self._inbox = inbox
        self._cycle = cycle
        self._lease_seconds = lease_seconds
        self._retention_days = retention_days
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._loop: Loop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin to handle deliveries in this process; again after a fork."""
        with self._lock:
            if self._running():
                return
            self._loop = Loop(
                self._inbox,
                self._cycle,
                threads=THREADS,
                lease_seconds=self._lease_seconds,
                retention_days=self._retention_days,
            )
            self._thread = threading.Thread(
                target=self._loop.run, args=(GRACE_SECONDS,), name="billhook-engine", daemon=True
            )
            self._thread.start()
            self._stopped = False
            self._pid = os.getpid()

    def wake(self, delivery_id: int) -> None:
        """A delivery came."""
        if not self._running() and not (self._stopped and self._pid == os.getpid()):
            self.start()
        if self._loop is not None:
            self._loop.wake()

    def _running(self) -> bool:
        return self._pid == os.getpid() and self._thread is not None and self._thread.is_alive()

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Give back what was not begun, wait for what runs, and end the thread; only `start` begins anew."""
        if self._pid == os.getpid() and self._loop is not None and self._thread is not None:
            self._stopped = True
            self._loop.stop()
            self._thread.join(grace_seconds)
