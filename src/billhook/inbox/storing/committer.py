"""Group commit: all requests that wait at one moment share one transaction and one fsync.

The committer is a thread of its own, so that a request can give up at its deadline while a hung database
blocks only the committer.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from billhook.basics.concurrency import reset_in_child, run_blocking, start_thread, threads_are_greenlets
from billhook.basics.failpoints import ARMED, reach
from billhook.errors import (
    BacklogFull,
    DeadlinePassed,
    Draining,
    InboxUnavailable,
    OutOfResources,
    SchemaMismatch,
)
from billhook.inbox.storing.probe import StartupCheck
from billhook.inbox.tables.records import NewDelivery, PutStatus, Receipt
from billhook.logs import fields

logger = logging.getLogger("billhook.inbox")

BATCH_LIMIT = 256
"""Rows in one transaction at most: some milliseconds of work."""
GATHER_SECONDS = 0.002
"""Under load, how long a batch waits to become as large as the one before it."""
SLOW_SECONDS = 0.1
"""If a batch took longer than this, the next one waits for its turn to write before it is filled."""
LOAD_ROWS = 4
"""A batch of this size or more counts as load; below it no request waits for others."""
HOLDER_SECONDS = 0.5
"""How long refusals name the process that was found to hold the write lock, before it is looked up again."""
STARTUP_WAIT_SECONDS = 0.5
"""How long the first deliveries wait for a server that was silent at the start, which has waited already."""
LEAST_AGE_SECONDS = 0.25
COST_FACTOR = 20
"""A backlog count is used for 20 times as long as it took: counting costs a twentieth of the time at most."""


@dataclass(slots=True, eq=False)
class _QueueEntry:
    """One request's place in the queue: a thread or a coroutine waits for its future, or cancels it."""

    delivery: NewDelivery
    receipt: Future[Receipt] | asyncio.Future[Receipt]
    following: Iterator[tuple[_QueueEntry, Receipt | InboxUnavailable]] | None = None
    """The rest of its batch, which a thread that was woken wakes in turn."""


class BacklogLimit:
    """Whether the backlog is full, for the one thread that commits.

    The last count, plus what this process has committed since. What other processes accept or handle between
    two counts is not included, so the limit can be overshot by what they accept in that time.
    """

    def __init__(
        self, count: Callable[[int], int], limit: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`count` returns the number of unfinished deliveries, up to its argument."""
        self.limit = limit
        self._count = count
        self._monotonic = monotonic
        self._depth = 0
        self._again_at = 0.0

    def full(self) -> bool:
        """Return whether `limit` deliveries are unfinished. Raises what `count` raises."""
        started = self._monotonic()
        if started >= self._again_at:
            self._depth = self._count(self.limit)
            ended = self._monotonic()
            self._again_at = ended + max(LEAST_AGE_SECONDS, COST_FACTOR * (ended - started))
        return self._depth >= self.limit

    def add(self, accepted: int) -> None:
        """Add deliveries that this process has committed since the last count."""
        self._depth += accepted


class Committer:
    """Commits what `put` brings, in batches; its thread starts at first use in each process."""

    def __init__(
        self,
        insert_batch: Callable[[Sequence[NewDelivery]], Sequence[Receipt]],
        after_commit: Sequence[Callable[[], None]],
        deadline_seconds: float,
        *,
        backlog: BacklogLimit | None = None,
        on_failure: Callable[[], None] = lambda: None,
        insert_blocks: bool = False,
        write_lock_holder: Callable[[], int | None] = lambda: None,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`insert_batch` commits; `after_commit` is called after each batch, `on_failure` after refused ones.

        `insert_blocks` says that both wait for the disk in C code: see billhook.basics.concurrency.
        `write_lock_holder` returns the process that keeps it waiting, for the log, without blocking. `turn`
        waits until no other process writes, and lets none begin in its block.
        """
        self._insert_batch = insert_batch
        self._after_commit = after_commit
        self._deadline_seconds = deadline_seconds
        self._backlog = backlog
        self._on_failure = on_failure
        self._insert_blocks = insert_blocks
        self._write_lock_holder = write_lock_holder
        self._turn = turn
        self._holder: int | None = None
        self._holder_until = 0.0
        self._is_greenlet = False
        self.startup_check: StartupCheck | None = None
        """The check of the database that was still running when this process had started."""
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._queue: SimpleQueue[_QueueEntry | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._busy_since: float | None = None
        self._last_size = 0
        self._is_slow = False
        self._failing = False

    def put(self, delivery: NewDelivery, timeout_seconds: float | None = None) -> Receipt:
        """Return once the delivery is on stable storage, within the deadline or `timeout_seconds`.

        Raises InboxUnavailable, or its kinds DeadlinePassed, BacklogFull and Draining: then nothing may be
        acknowledged, and the sender has to retry.
        """
        timeout = self._deadline_seconds if timeout_seconds is None else timeout_seconds
        end = time.monotonic() + timeout
        if self.startup_check is not None:
            self._wait_for_startup(timeout)
        receipt: Future[Receipt] = Future()
        self._check_usable()
        entry = _QueueEntry(delivery, receipt)
        self._queue.put(entry)
        try:
            return receipt.result(max(0.0, end - time.monotonic()))
        except TimeoutError:
            # If it is committed all the same, the sender's next attempt is a duplicate.
            raise self._deadline_passed(f"no commit within {timeout:.1f} s") from None
        finally:
            receipt.cancel()  # also after an interruption: the committer then wakes the next request itself
            if entry.following is not None:
                _answer(entry.following)

    async def put_async(self, delivery: NewDelivery, timeout_seconds: float) -> Receipt:
        """Return as `put` does, without blocking the event loop, which is woken once for a whole batch."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_seconds
        if self.startup_check is not None:
            await asyncio.to_thread(self._wait_for_startup, timeout_seconds)
        receipt: asyncio.Future[Receipt] = loop.create_future()
        timer = loop.call_at(end, self._give_up, receipt, timeout_seconds)
        try:
            self._check_usable()
            self._queue.put(_QueueEntry(delivery, receipt))
            return await receipt  # cancelled for a client that has gone, and not stored if still in the queue
        finally:
            timer.cancel()

    def _give_up(self, receipt: asyncio.Future[Receipt], timeout_seconds: float) -> None:
        if not receipt.done():  # pragma: no branch - it may be done in the same turn
            receipt.set_exception(self._deadline_passed(f"no commit within {timeout_seconds:.1f} s"))

    def _wait_for_startup(self, timeout_seconds: float) -> None:
        """Give a database that was silent at start a moment to answer."""
        check = self.startup_check
        if check is not None:
            check.wait(min(STARTUP_WAIT_SECONDS, timeout_seconds))
            if check.done:
                self.startup_check = None

    def _deadline_passed(self, text: str) -> DeadlinePassed:
        """Return the error; it names the process that holds the write lock, which may have stopped."""
        now = time.monotonic()
        if now >= self._holder_until:  # a crowd asks at once, and on the event loop
            self._holder, self._holder_until = self._write_lock_holder(), now + HOLDER_SECONDS
        holder = self._holder
        return DeadlinePassed(text if holder is None else f"{text}; process {holder} holds the write lock")

    def _check_usable(self) -> None:
        """Start the thread if it does not run. Raises InboxUnavailable where waiting for it is pointless."""
        if self._thread is None or not self._thread.is_alive():
            self.start()
        if self._closed:
            raise Draining("the receiver is shutting down")
        busy_since = self._busy_since
        if busy_since is not None and time.monotonic() - busy_since > self._deadline_seconds:
            # A batch hangs already: waiting behind it would only occupy another request.
            raise self._deadline_passed("the inbox does not answer")
        if self._failing and busy_since is not None:
            # Another request is finding out whether storage is back; this one would get the same answer.
            raise InboxUnavailable("the inbox is failing")

    def start(self) -> None:
        """Start the thread in this process, if it is not running. Raises OutOfResources."""
        with self._starting:
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._busy_since = None  # a thread that ran out of memory may have left it set
                self._thread = start_thread(self._work, "billhook-committer")

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Refuse new deliveries, commit those in the queue, and stop."""
        self._closed = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout_seconds)

    def reopen(self) -> None:
        """Take deliveries again after `close`; the thread starts at the next use."""
        with self._starting:
            if self._closed:
                if self._thread is None or not self._thread.is_alive():
                    self._queue = SimpleQueue()  # without a mark of the end that no thread has read
                self._closed = False

    def _work(self) -> None:
        # Here: a server may change the threads of each process.
        self._is_greenlet = self._insert_blocks and threads_are_greenlets()
        while (first := self._queue.get()) is not None:
            self._busy_since = began = time.monotonic()
            # Processes take turns on a disk that syncs slowly. A request that comes while this one waits for
            # its turn would else wait for the next one: longer than its deadline.
            with self._turn() if self._is_slow and not self._is_greenlet else nullcontext():
                self._commit_batch(first)
            self._is_slow = time.monotonic() - began > SLOW_SECONDS
            try:
                for step in self._after_commit:
                    if self._is_greenlet:
                        run_blocking(step)
                    else:
                        step()
            except Exception as error:
                text = "post-commit step failed; the deliveries are stored"
                logger.exception(text, extra=fields(cause=error))
            self._busy_since = None

    def _commit_batch(self, first: _QueueEntry) -> None:
        batch = [first]
        try:
            if self._backlog is not None and self._backlog.full():
                raise BacklogFull(f"{self._backlog.limit} deliveries wait already")  # noqa: TRY301 - like the others
            self._fill(batch)  # as late as possible: the batch takes all that came until now
            deliveries = [entry.delivery for entry in batch]
            if ARMED:
                reach("before_insert")
            if self._is_greenlet:
                receipts = run_blocking(self._insert_batch, deliveries)
            else:
                receipts = self._insert_batch(deliveries)
            if ARMED:
                reach("after_insert")
            if self._backlog is not None:
                self._backlog.add(sum(receipt.status is PutStatus.ACCEPTED for receipt in receipts))
            self._failing = False
        except Exception as failure:  # noqa: BLE001 - a defect must not end the only thread that commits
            error = self._unavailable(failure)
            self._busy_since = None  # a sender may retry at once: nothing is being tried any more
            _answer(iter([(entry, error) for entry in batch]))
        else:
            _answer(zip(batch, receipts, strict=True))

    def _fill(self, batch: list[_QueueEntry]) -> None:
        """Add the requests that wait in the queue to the batch.

        Under load, wait up to 2 ms for the clients of the previous batch to send again: a larger batch
        amortises the fsync.
        """
        if self._last_size >= LOAD_ROWS and self._queue.qsize() + 1 < self._last_size:
            time.sleep(GATHER_SECONDS)
        with suppress(Empty):
            while len(batch) < BATCH_LIMIT:
                entry = self._queue.get_nowait()
                if entry is None:
                    self._queue.put(None)  # the end mark stays in the queue
                    break
                if not entry.receipt.done():  # else its request has given up
                    batch.append(entry)
        self._last_size = len(batch)

    def _unavailable(self, failure: Exception) -> InboxUnavailable:
        """Return what the requests of a failed batch are answered."""
        if isinstance(failure, InboxUnavailable):
            self._failing = not isinstance(failure, BacklogFull)
            self._on_failure()
            error = failure.with_traceback(None)  # it holds frames, and those the connections that failed
            error.__context__ = None
            return error
        if isinstance(failure, SchemaMismatch):  # a database that was away when this process started
            self._failing = True
            self._on_failure()
            return InboxUnavailable(str(failure))
        if isinstance(failure, MemoryError):  # to log a traceback would need more memory
            return OutOfResources("there is no memory left")
        logger.error("commit of a batch failed unexpectedly", exc_info=failure, extra=fields(cause=failure))
        return InboxUnavailable("the commit failed")


def _answer(
    answers: Iterator[tuple[_QueueEntry, Receipt | InboxUnavailable]],
    loop: asyncio.AbstractEventLoop | None = None,
) -> None:
    """Wake the first thread of a batch, and each event loop once; in a `loop`, wake its coroutines.

    A thread that was woken wakes the next: all at once would compete for the interpreter.
    """
    elsewhere: dict[Any, list[tuple[_QueueEntry, Receipt | InboxUnavailable]]] = {}
    for entry, outcome in answers:
        own_loop = None if isinstance(entry.receipt, Future) else entry.receipt.get_loop()
        if own_loop is not loop:
            elsewhere.setdefault(own_loop, []).append((entry, outcome))
            continue
        if loop is None:
            entry.following = answers  # before it is woken
        try:
            if isinstance(outcome, InboxUnavailable):
                entry.receipt.set_exception(outcome)
            else:
                entry.receipt.set_result(outcome)
        except (InvalidStateError, asyncio.InvalidStateError):
            continue  # the request has given up
        if loop is None:
            break
    for other, its_answers in elsewhere.items():
        with suppress(RuntimeError):  # the loop is closed: its requests have ended
            other.call_soon_threadsafe(_answer, iter(its_answers), other)
