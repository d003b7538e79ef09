"""The thread engine: a worker in a thread of the web process, started after any fork."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from billhook.basics.concurrency import reset_in_child, start_thread
from billhook.basics.engine_kinds import THREAD
from billhook.engines.inline import Engine
from billhook.engines.worker import MAX_ABANDONED_THREADS, Worker
from billhook.errors import OutOfResources

logger = logging.getLogger("billhook.engines")

THREADS = 4
"""Handler threads beside the web threads; use `billhook worker --threads` for more."""
GRACE_SECONDS = 5.0
"""How long a web process waits for running handlers when it stops."""
LATE_SECONDS = 3.0
"""How much longer it waits for claims to be released: storage may be slow, or gone."""
RESTART_SECONDS = 1.0
"""How long after a start that failed the next request tries again: a start costs more than a request."""
replaced_by_its_parent = False
"""Set to True by a server that starts another process when this one ends by SIGTERM."""


@dataclass(eq=False, repr=False)
class ThreadEngine(Engine):
    """Starts at `start` or with the first request, once in each process."""

    kind = THREAD

    def __post_init__(self) -> None:
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._start_again_at = 0.0

    def start(self) -> None:
        """Start the worker in this process; again after a fork. Raises OutOfResources."""
        with self._lock:  # requests of several threads may come first
            if self.running:
                return
            # Made here and not in __init__: it has a pipe and threads, and gunicorn may fork after that.
            worker = Worker(
                self.inbox,
                self.dispatcher,
                threads=THREADS,
                lease_seconds=self.lease_seconds,
                engine=self.kind.name,
                maintenance=self.maintenance,
            )
            try:
                self._thread = start_thread(_run, "billhook-engine", worker, GRACE_SECONDS)
            except OutOfResources:
                worker.close()
                self._start_again_at = time.monotonic() + RESTART_SECONDS
                raise
            self._worker = worker
            self._stopped = False
        if not self.dispatcher.handlers.count():
            logger.warning(
                "no handler is registered: deliveries are stored and marked as done; "
                "pass handlers to Billhook(handlers=[...]), or set BILLHOOK_HANDLERS"
            )

    def ensure_started(self) -> None:
        """Start unless it runs, or was stopped in this process; called with every request.

        Raises OutOfResources, and then does nothing for RESTART_SECONDS.
        """
        if not (self.running or self._stopped) and time.monotonic() >= self._start_again_at:
            self.start()

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Start no worker in this process during the block: other processes handle what it stores."""
        before, self._stopped = self._stopped, True
        try:
            yield
        finally:
            self._stopped = before

    def wake(self, delivery_id: int) -> None:
        """Wake the worker up, which polls the inbox now."""
        self.ensure_started()
        if self._worker is not None:
            self._worker.wake()

    @property
    def running(self) -> bool:
        """Whether the worker runs in this process."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Release what was not started, wait for running attempts, and end the thread until `start`."""
        if self._worker is not None and self._thread is not None:
            # Set first: a request that comes now must not start it again.
            self._stopped = True
            self._worker.stop()
            # Bounded: a handler that never returns must not keep the web process from exiting.
            self._thread.join(grace_seconds + LATE_SECONDS)
            self._worker.detach()  # the caller may close the inbox now


def _run(worker: Worker, grace_seconds: float) -> None:
    replaceable = _in_a_gunicorn_worker()
    try:
        worker.run(grace_seconds, max_abandoned_threads=MAX_ABANDONED_THREADS if replaceable else math.inf)
    finally:
        worker.close()
    if worker.broken and replaceable:
        os.kill(os.getpid(), signal.SIGTERM)  # a graceful stop, after which gunicorn starts a new process


def _in_a_gunicorn_worker() -> bool:
    """Return whether SIGTERM is gunicorn's here. Another server would end by it and not be restarted."""
    if replaced_by_its_parent:
        return True
    owner = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return any(base.__module__.startswith("gunicorn.workers.") for base in type(owner).__mro__)
