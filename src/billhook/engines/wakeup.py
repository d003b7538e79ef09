"""Sleep between two polls of the worker: what wakes it, and how long it sleeps at most."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from billhook.inbox import Inbox

MAX_POLL_SECONDS = 2.0
"""The longest pause between two polls: how long a delivery can lie unseen if its notification was lost."""
MIN_POLL_SECONDS = 0.01
_MAX_DOUBLINGS = 8


class Wakeup:
    """As threading.Event, but the wait ends too when another process notifies the inbox.

    It is a pipe for the threads of this process, beside the descriptor of the inbox's waker.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._read, self._write = os.pipe()
        # Not blocking: a full pipe wakes up as well as one byte does.
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._is_set = False
        # Reentrant: a signal handler may wake the worker up while its thread does.
        self._descriptors = threading.RLock()
        self._closed = False

    def set(self) -> None:
        """Wake the worker up; callable from any thread, and cheap if it is set already."""
        if not self._is_set:
            self._is_set = True
            with self._descriptors, suppress(BlockingIOError):
                if not self._closed:
                    os.write(self._write, b"!")

    def close(self) -> None:
        """Close the pipe. `set` does nothing from now on; `wait` must not be called any more."""
        with self._descriptors:
            if not self._closed:
                self._closed = True
                os.close(self._read)
                os.close(self._write)

    def clear(self) -> None:
        """Clear the flag. Call it before reading the queue, so that a wake-up during the read is not lost."""
        self._is_set = False
        with suppress(OSError):  # the waker is not available: the next slow poll finds the rows
            self._inbox.waker.fileno()

    def wait(self, seconds: float) -> None:
        """Sleep until woken up, or until the time is over."""
        if seconds <= 0 or self._is_set:
            return
        waker = self._inbox.waker
        poll = select.poll()  # select() refuses descriptors from 1,024 on
        poll.register(self._read, select.POLLIN)
        with suppress(OSError):
            poll.register(waker.fileno(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        if self._read in ready:
            with suppress(BlockingIOError):
                os.read(self._read, 65_536)
        # Drained, or it would be ready again at once, and the worker would spin.
        if ready - {self._read}:
            with suppress(OSError):
                waker.wait(0)


class PollBackoff:
    """Time until the next poll: until the next due run, or exponential back-off after empty claims.

    A claim returns nothing although runs are due when other workers have locked them.
    """

    def __init__(self) -> None:
        self._empty_claims = 0

    def record_claim(self, count: int, next_due_at: datetime | None, now: datetime) -> None:
        """Record how many runs a claim returned, and when the next one is due after it."""
        left = next_due_at is not None and next_due_at <= now
        self._empty_claims = self._empty_claims + 1 if left and not count else 0

    def is_worth_claiming(self, next_due_at: datetime | None, now: datetime, *, idle: bool) -> bool:
        """Return whether a claim is likely to return rows; `idle`: a thread is free.

        After an empty claim, wait for a free thread: what is left may be runs that were lost in a worker's
        queue, and these are claimed for a free thread only.
        """
        return next_due_at is not None and next_due_at <= now and (idle or not self._empty_claims)

    def seconds(
        self, next_due_at: datetime | None, now: datetime, others: Iterable[float | None], *, idle: bool
    ) -> float:
        """Return the seconds until the next poll; `others` are those until anything else has to be done."""
        pauses = [MAX_POLL_SECONDS, *(pause for pause in others if pause is not None)]
        if next_due_at is not None and next_due_at > now:
            pauses.append((next_due_at - now).total_seconds())
        elif next_due_at is not None and idle:
            # Another worker has it locked. Without a free thread, a finished attempt wakes us up anyway.
            pauses.append(MIN_POLL_SECONDS * 2 ** min(self._empty_claims, _MAX_DOUBLINGS))
        return max(MIN_POLL_SECONDS, min(pauses))
