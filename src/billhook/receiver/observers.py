"""Call the observers of refused deliveries in a thread of their own.

Anyone can send deliveries that are refused, so observers of refusals must delay neither the answer nor a
genuine delivery. A thread pool that is shared with deliveries could be full of them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from flask import Flask

from billhook.errors import OutOfResources
from billhook.threads import start_thread

MAX_WAITING = 1000
"""The most refusals that wait for their observers; observers are not called for further ones."""


class RefusalObservers:
    """Calls functions one after the other, within the app's context and after the answer was sent."""

    def __init__(self, app: Flask) -> None:
        self._app = app
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None

    def enqueue(self, call: Callable[[], None]) -> bool:
        """Queue `call` for the thread; return False if too many wait already. Use it from one thread only."""
        try:
            self._waiting.put_nowait(call)
        except queue.Full:
            return False
        if self._thread is None or not self._thread.is_alive():
            try:
                self._thread = start_thread(self._run, "billhook-observers")
            except OutOfResources:
                return False  # called when a thread can be started again
        return True

    def _run(self) -> None:
        while True:
            call = self._waiting.get()
            with self._app.app_context():
                call()
