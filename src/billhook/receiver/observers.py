"""Tell observers of refused deliveries, in a thread of its own.

Anybody can have deliveries refused, so what observes refusals must hold up neither the answer nor a genuine
delivery: not for a place in a pool of threads either, which is why they do not share one.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from flask import Flask

from billhook.errors import OutOfResources
from billhook.threads import start_thread

MOST_WAITING = 1000
"""Refusals that observers have not been told yet; what is refused beyond them is not told."""


class RefusalObservers:
    """Calls functions within the app's context, one after the other, each after its answer."""

    def __init__(self, app: Flask) -> None:
        self._app = app
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def tell(self, call: Callable[[], None]) -> bool:
        """Have `call` called soon; return False where too many wait already. Called by one thread alone."""
        try:
            self._waiting.put_nowait(call)
        except queue.Full:
            return False
        if self._thread is None or not self._thread.is_alive():
            try:
                self._thread = start_thread(self._run, "billhook-observers")
            except OutOfResources:
                return False  # told when a thread can be started again
        return True

    def _run(self) -> None:
        while True:
            call = self._waiting.get()
            with self._app.app_context():
                call()
