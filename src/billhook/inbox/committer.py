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
from itertools import pairwise
from queue import Empty, SimpleQueue

from billhook.errors import BacklogFull, DeadlinePassed, Draining, InboxUnavailable, OutOfResources
from billhook.inbox.forking import SETTING_UP
from billhook.inbox.records import Incoming, Receipt
from billhook.inbox.threads import start_thread

__all__ = ["Committer"]

logger = logging.getLogger("billhook.inbox")

BATCH_LIMIT = 256
"""Rows in one transaction at most: some milliseconds of work."""
GATHER_SECONDS = 0.002
"""Under load, how long a batch waits to become as large as the one before it."""
LOAD_ROWS = 4
"""A batch of so many is load: below it nobody ever waits for company."""
LOOK_SECONDS = 0.05
"""How often a waiter looks for itself whether it was committed, in case nobody tells it."""


class _Entry:
    """One request's place in the queue. `done` is a lock held until somebody releases it."""

    __slots__ = ("abandoned", "done", "error", "incoming", "next", "receipt")

    def __init__(self, incoming: Incoming) -> None:
        self.incoming = incoming
        self.receipt: Receipt | None = None
        self.error: InboxUnavailable | None = None
        self.next: _Entry | None = None
        self.abandoned = False
        self.done = threading.Lock()
        self.done.acquire()

    def wait(self, timeout_seconds: float) -> bool:
        """Until it is committed or failed, or the time is over; True for the former."""
        end = time.monotonic() + timeout_seconds
        while not self.done.acquire(timeout=max(0.0, min(LOOK_SECONDS, end - time.monotonic()))):
            if self.receipt is not None or self.error is not None:
                return True
            if time.monotonic() >= end:
                return False
        return True


class Committer:
    """Commits what `put` brings, in batches, through `commit`; started at first use in each process."""

    def __init__(
        self,
        commit: Callable[[Callable[[], Sequence[Incoming]]], Sequence[Receipt]],
        tidy: Callable[[], None],
        deadline_seconds: float,
    ) -> None:
        """`commit` calls what it is given just before it writes: that is the batch. `tidy` comes after it."""
        self._commit = commit
        self._tidy = tidy
        self._deadline_seconds = deadline_seconds
        self._baton = threading.local()
        self._start_over()

    def _start_over(self) -> None:
        self._queue: SimpleQueue[_Entry | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._busy_since: float | None = None
        self._last_size = 0
        self._failing = False
        self._pid = os.getpid()  # last: whoever sees it uses what is above

    def put(self, incoming: Incoming, timeout_seconds: float) -> Receipt:
        """Return once the row is committed. Raises InboxUnavailable and its kinds; then send again."""
        if self._thread is None or self._pid != os.getpid() or not self._thread.is_alive():
            self.start()
        if self._closed:
            raise Draining("the receiver is shutting down")
        busy_since = self._busy_since
        if busy_since is not None and time.monotonic() - busy_since > self._deadline_seconds:
            # One batch hangs already: waiting behind it would only take a thread from somebody else.
            raise DeadlinePassed("the inbox does not answer")
        if self._failing and busy_since is not None:
            # Somebody is finding out whether storage is back; the others need not wait for the same answer.
            raise InboxUnavailable("the inbox is failing")
        self.answered()  # a caller that puts again is done with its last
        entry = _Entry(incoming)
        self._queue.put(entry)
        try:
            if not entry.wait(timeout_seconds):
                entry.abandoned = True
                raise DeadlinePassed(f"no commit within {timeout_seconds:.1f} s")
        finally:
            self._baton.entry = entry.next
        if entry.receipt is None:
            raise entry.error or InboxUnavailable("the commit gave no receipt")
        return entry.receipt

    def answered(self) -> None:
        """This thread is done with its last `put`: wake the next of the batch.

        One by one, each when the one before has sent its answer, they do not fight for the interpreter.
        Who forgets to call this delays the next by LOOK_SECONDS at most.
        """
        following: _Entry | None = getattr(self._baton, "entry", None)
        if following is not None:
            self._baton.entry = None
            following.done.release()

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Take nothing more, commit what waits, and stop."""
        self._closed = True
        thread = self._thread
        if thread is not None and self._pid == os.getpid():
            self._queue.put(None)
            thread.join(timeout_seconds)

    def start(self) -> None:
        """Start its thread in this process, if it does not run. Raises OutOfResources."""
        with SETTING_UP:
            if self._pid != os.getpid():
                self._start_over()
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._busy_since = None  # one that ended for want of memory may have left it
                self._thread = start_thread(self._work, "billhook-committer")

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            self._busy_since = time.monotonic()
            self._commit_with(first)
            try:
                self._tidy()
            except Exception:
                logger.exception("tidying up after a commit failed; the commit stands")
            self._busy_since = None

    def _commit_with(self, first: _Entry) -> None:
        """One batch: `first`, and whoever waits when the transaction is about to begin."""
        batch = [first]

        def take() -> list[Incoming]:
            self._gather()
            batch.extend(self._waiting(BATCH_LIMIT - 1))
            self._last_size = len(batch)
            return [entry.incoming for entry in batch]

        error: InboxUnavailable | None = None
        receipts: Sequence[Receipt] = ()
        try:
            receipts = self._commit(take)
            self._failing = False
        except InboxUnavailable as failure:
            error = failure.with_traceback(None)  # it holds frames, and they the connections that failed
            error.__context__ = None
            self._failing = not isinstance(failure, BacklogFull)
        except MemoryError:  # to log a traceback would take more of it
            error = OutOfResources("there is no memory left")
        except Exception:
            # A defect must not end the only thread that commits; every waiter is told to try again.
            logger.exception("the committer failed")
            error = InboxUnavailable("the commit failed")
        for number, entry in enumerate(batch):
            if error is None:
                entry.receipt = receipts[number]
            else:
                entry.error = error
        # Only when everybody's answer is there may anybody be woken, by us or by one another.
        for entry, following in pairwise(batch):
            entry.next = following
        if error is not None:
            self._busy_since = None  # whoever is told may come again at once: nobody is trying any more
        first.done.release()

    def _gather(self) -> None:
        """Under load, let those come back who were answered last: a commit costs much, a row little."""
        if self._last_size >= LOAD_ROWS and self._queue.qsize() + 1 < self._last_size:
            time.sleep(GATHER_SECONDS)

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
