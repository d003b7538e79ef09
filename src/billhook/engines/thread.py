"""The thread engine: the loop in a thread of the app's own process, begun after any fork."""

from __future__ import annotations

import math
import os
import signal
import threading

from billhook.engines.cycle import Cycle
from billhook.engines.loop import LEFT_BEHIND_LIMIT, Loop
from billhook.inbox import Inbox

__all__ = ["ThreadEngine"]

THREADS = 4
"""Handlers that run at once beside the web threads; `billhook worker --threads` is for more."""
GRACE_SECONDS = 5.0
"""How long running handlers are waited for at the end of a web process."""

LATE_SECONDS = 3.0
"""And beyond that for giving back what was claimed: storage may be slow, or gone."""


class ThreadEngine:
    """Starts at `start` or with the first request, once in each process."""

    def __init__(
        self,
        inbox: Inbox,
        cycle: Cycle,
        *,
        lease_seconds: float,
        retention_days: float = 30.0,
        key_days: float | None = None,
    ) -> None:
        self._inbox = inbox
        self._cycle = cycle
        self._lease_seconds = lease_seconds
        self._retention_days = retention_days
        self._key_days = key_days
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._loop: Loop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin to handle deliveries in this process; again after a fork."""
        with self._lock:
            if self.running:
                return
            self._loop = Loop(
                self._inbox,
                self._cycle,
                threads=THREADS,
                lease_seconds=self._lease_seconds,
                engine="thread",
                retention_days=self._retention_days,
                key_days=self._key_days,
            )
            self._thread = threading.Thread(
                target=_run, args=(self._loop, GRACE_SECONDS), name="billhook-engine", daemon=True
            )
            self._thread.start()
            self._stopped = False
            self._pid = os.getpid()

    def begin(self) -> None:
        """Start, unless it runs, or was stopped in this process: called with every request."""
        if not self.running and not (self._stopped and self._pid == os.getpid()):
            self.start()

    def wake(self, delivery_id: int) -> None:
        """A delivery came."""
        self.begin()
        if self._loop is not None:
            self._loop.wake()

    @property
    def running(self) -> bool:
        """Whether the loop runs in this process."""
        return self._pid == os.getpid() and self._thread is not None and self._thread.is_alive()

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Give back what was not begun, wait for what runs, and end the thread; only `start` begins anew."""
        if self._pid == os.getpid() and self._loop is not None and self._thread is not None:
            self._stopped = True
            self._loop.stop()
            self._thread.join(grace_seconds + LATE_SECONDS)
            self._loop.abandon()  # the inbox may be closed now


def _run(loop: Loop, grace_seconds: float) -> None:
    replaced = _in_a_gunicorn_worker()
    loop.run(grace_seconds, left_behind_limit=LEFT_BEHIND_LIMIT if replaced else math.inf)
    if loop.broken and replaced:
        os.kill(os.getpid(), signal.SIGTERM)  # it ends in order, and gunicorn starts another one


def _in_a_gunicorn_worker() -> bool:
    """Whether SIGTERM is for gunicorn here. Another server would end by it, and nobody start it again."""
    owner = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return any(one.__module__.startswith("gunicorn.workers.") for one in type(owner).__mro__)
