"""Buffer the counts of refusals and duplicates, which write no transaction, for a few seconds in memory.

Anyone can cause refusals, so they must cost the disk little: each process writes at most one transaction in
five seconds, however many there are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from billhook.basics.concurrency import reset_in_child, start_thread
from billhook.errors import InboxUnavailable, OutOfResources, SchemaMismatch
from billhook.inbox.counting.counts import CountKey, Counts, Sum
from billhook.logs import LimitedLog, fields

logger = logging.getLogger("billhook.inbox")

EVERY_SECONDS = 5.0
CLOSE_SECONDS = 1.0
PAUSE_FACTOR = 10
"""After a write, pause for this multiple of the time it took: it holds up deliveries of all processes."""
LIMIT = 10_000
"""Rows in memory at most, while the inbox cannot be written; what does not fit is not counted."""


class BufferedCounts(Counts):
    """Counts of one process; a thread writes them while there are any, and ends."""

    def __init__(self, write: Callable[[Counts], None], every_seconds: float = EVERY_SECONDS) -> None:
        """`write` adds counts to the inbox in a transaction of its own."""
        self._write = write
        self._every_seconds = every_seconds
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self.clear()
        self._lock = threading.Lock()
        self._log = LimitedLog(logger, interval_seconds=60.0)
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def put(self, key: CountKey, added: Sum) -> None:
        """Add to one sum, which is in the inbox some seconds later; never waits for the inbox."""
        with self._lock:
            if len(self) < LIMIT:
                super().put(key, added)
            # It may have ended early, where there is no memory for what it needs.
            running = self._thread is not None and self._thread.is_alive()
            if not running and not self._closing.is_set():
                try:
                    self._thread = start_thread(self._run, "billhook-counts")
                except OutOfResources as error:  # the next one tries again
                    text = f"counts not written yet, kept in memory: {error}"
                    self._log.log("thread", logging.WARNING, text, cause=error)

    def close(self) -> None:
        """Write what there is, within a second, and start no thread any more."""
        self._closing.set()
        thread = self._thread
        if thread is not None:
            thread.join(CLOSE_SECONDS)

    def reopen(self) -> None:
        """Start threads again after `close`."""
        self._closing.clear()

    def _run(self) -> None:
        pause = self._every_seconds
        while True:
            closing = self._closing.wait(pause)
            with self._lock:
                counts = Counts(self)
                self.clear()
            began = time.monotonic()
            try:
                self._write(counts)
                counts = Counts()
            except (InboxUnavailable, SchemaMismatch):  # logged by what stores deliveries
                pass
            except Exception as error:
                counts = Counts()
                text = "counts of refusals and duplicates could not be written"
                logger.exception(text, extra=fields(cause=error))
            pause = max(self._every_seconds, PAUSE_FACTOR * (time.monotonic() - began))
            with self._lock:
                for key, unwritten in counts.items():
                    super().put(key, unwritten)
                if closing or not self:
                    self._thread = None
                    return
