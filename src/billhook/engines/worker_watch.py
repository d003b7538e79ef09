"""Notice in a web process that no worker is alive: a worker that is gone cannot report that itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime

from billhook.errors import BillhookError
from billhook.inbox import Inbox
from billhook.inbox.issues import update_issues
from billhook.inbox.occurrences import workers_gone_since
from billhook.logs import fields
from billhook.notify import Notifier
from billhook.threads import reset_in_child, start_thread

logger = logging.getLogger("billhook.engines")

LOOK_SECONDS = 30.0


class WorkerWatch:
    """Looks from a thread of its own; while no worker is alive, it opens the issue and notifies people."""

    def __init__(self, inbox: Inbox, now: Callable[[], datetime], notifier: Notifier | None) -> None:
        self._inbox = inbox
        self._now = now
        self._notifier = notifier
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start the thread in this process, unless it runs. Raises OutOfResources."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            self._thread = start_thread(self._work, "billhook-worker-watch")

    def stop(self) -> None:
        """End the thread; a look is not waited for."""
        self._stopping.set()
        if self._notifier is not None:
            self._notifier.stop()

    def _work(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                self.look(self._now())
            except BillhookError as error:
                logger.warning("could not look for workers: %s", error, extra=fields(cause=error))
            except Exception as error:
                logger.exception("could not look for workers", extra=fields(cause=error))

    def look(self, now: datetime) -> None:
        """Update the issues if no worker is alive to do it."""
        with self._inbox.database.read() as connection:
            gone = workers_gone_since(connection, now) is not None
        if gone:
            if self._notifier is not None:
                self._notifier.ensure_started()
            update_issues(self._inbox, now, with_figures=False)
