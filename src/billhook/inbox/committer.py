"""Group commit: all requests that wait at one moment share one transaction and one sync of the disk.

The committer is a thread of its own, so that a request can give up at its deadline while a hung
database keeps only the committer.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from billhook.errors import DeadlinePassed, Draining, InboxUnavailable
from billhook.inbox.records import Incoming, Receipt

__all__ = ["Committer"]

logger = logging.getLogger("billhook.inbox")

BATCH_LIMIT = 256
"""Rows in one transaction at most: some milliseconds of work."""


class _Entry:
    """One request's place in the queue. `done` is a lock held until the committer releases it."""

    __slots__ = ("abandoned", "done", "error", "incoming", "receipt")

    def __init__(self, incoming: Incoming) -> None:
        self.incoming = incoming
        self.receipt: Receipt | None = None
        self.error: InboxUnavailable | None = None
        self.abandoned = False
        self.done = threading.Lock()
        self.done.acquire()


class Committer:
    """Commits what `put` brings, in batches, through `commit`; started at first use in each process."""

    def __init__(
        self, commit: Callable[[Callable[[], Sequence[Incoming]]], Sequence[Receipt]], deadline_seconds: float
    ) -> None:
        """`commit` calls what it is given once it has the write lock: that is the batch."""
        self._commit = commit
        self._deadline_seconds = deadline_seconds
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._queue: SimpleQueue[_Entry | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._busy_since: float | None = None

    def put(self, incoming: Incoming, timeout_seconds: float) -> Receipt:
        """Return once the row is committed. Raises InboxUnavailable and its kinds; then send again."""
        if self._thread is None or self._pid != os.getpid():
            self._start()
        if self._closed:
            raise Draining("the receiver is shutting down")
        busy_since = self._busy_since
        if busy_since is not None and time.monotonic() - busy_since > self._deadline_seconds:
            # One batch hangs already: waiting behind it would only take a thread from somebody else.
            raise DeadlinePassed("the inbox does not answer")
        entry = _Entry(incoming)
        self._queue.put(entry)
        if not entry.done.acquire(timeout=max(0.0, timeout_seconds)):
            entry.abandoned = True
            raise DeadlinePassed(f"no commit within {timeout_seconds:.1f} s")
        if entry.receipt is None:
            raise entry.error or InboxUnavailable("the commit gave no receipt")
        return entry.receipt

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Take nothing more, commit what waits, and stop."""
        self._closed = True
        thread = self._thread
        if thread is not None and self._pid == os.getpid():
            self._queue.put(None)
            thread.join(timeout_seconds)

    def _start(self) -> None:
        if self._pid != os.getpid():
            self._start_over()
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="billhook-committer", daemon=True)
                thread.start()
                self._thread = thread

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            self._busy_since = time.monotonic()
            self._commit_with(first)
            self._busy_since = None

    def _commit_with(self, first: _Entry) -> None:
        """One batch: `first`, and whoever waits when the transaction has the write lock, not before."""
        batch = [first]

        def take() -> list[Incoming]:
            batch.extend(self._waiting(BATCH_LIMIT - 1))
            return [entry.incoming for entry in batch]

        error: InboxUnavailable | None = None
        receipts: Sequence[Receipt] = ()
        try:
            receipts = self._commit(take)
        except InboxUnavailable as failure:
            error = failure
        except Exception:
            # A defect must not end the only thread that commits; every waiter is told to try again.
            logger.exception("the committer failed")
            error = InboxUnavailable("the commit failed")
        for number, entry in enumerate(batch):
            if error is None:
                entry.receipt = receipts[number]
            else:
                entry.error = error
            entry.done.release()

    def _waiting(self, limit: int) -> Iterator[_Entry]:
        """Those in the queue who have not given up; the end mark stays there."""
        with suppress(Empty):
            for _ in range(limit):
                entry = self._queue.get_nowait()
                if entry is None:
                    self._queue.put(None)
                    return
                if not entry.abandoned:
                    yield entry
