"""The sender: delivers what is due, on a pool of threads.

One thread selects due deliveries and hands them to the pool; it wakes up after a commit, after an attempt
and at the next retry. Which deliveries are in progress is known in memory only: in the database they stay
due until they are settled, so after a crash they are sent again, at least once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from billhook.sandbox.service import Service
from billhook.sandbox.webhooks import faults, signing_secrets
from billhook.sandbox.webhooks.attempt import Attempter
from billhook.sandbox.webhooks.http_post import WebhookPoster
from billhook.sandbox.webhooks.outbox import DueDelivery, count_due, find_due, next_due_at, settle
from billhook.sandbox.webhooks.outcomes import FaultKind
from billhook.sandbox.webhooks.signing_secrets import Signer

__all__ = ["Sender"]

THREADS = 32
MAX_PER_DESTINATION = 4
"""Concurrent deliveries to one host and port, so that a receiver that hangs does not take all threads."""
MIN_WAIT_SECONDS = 0.05
ERROR_PAUSE_SECONDS = 1.0

logger = logging.getLogger("billhook.sandbox")


class Sender:
    """Delivers until it is stopped; sleeps while nothing is due."""

    def __init__(self, service: Service) -> None:
        self._service = service
        options = service.options
        self._poster = WebhookPoster(options.delivery_timeout_seconds, allow_private=options.allow_private)
        self._attempter = Attempter(self._poster, service.clock.real)
        self._changed = threading.Condition()
        self._wake_up = False
        self._changes = 0
        self._stopped = threading.Event()
        self._in_progress: dict[str, str] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the threads; deliveries left over from a crash are due and sent first."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sandbox-sender")
        self._thread = threading.Thread(target=self._run, name="sandbox-sender", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for due deliveries now."""
        with self._changed:
            self._wake_up = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop sending. Attempts in progress are aborted and made again after the next start."""
        self._stopped.set()
        self.wake()
        if self._thread is not None:
            self._thread.join()
        self._poster.close()
        if self._threads is not None:
            self._threads.shutdown(wait=True)

    def flush(self, timeout_seconds: float) -> int:
        """Wait at most `timeout_seconds` until nothing is due; return how many deliveries still are."""
        ends = time.monotonic() + timeout_seconds
        self.wake()
        while True:
            with self._changed:
                seen = self._changes  # before counting, so that a change in between is not missed
            with self._service.transaction(writes=False) as tx:
                due = count_due(tx)
            left = ends - time.monotonic()
            if not due or left <= 0:
                return due
            with self._changed:
                self._changed.wait_for(
                    lambda: self._changes != seen or self._stopped.is_set(),  # noqa: B023 - called at once
                    left,
                )
            if self._stopped.is_set():  # not counted again: the database is closed next
                return due

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self._changed:
                self._wake_up = False
            try:
                wait = self._send_due()
            except Exception as error:  # noqa: BLE001 - this thread must survive, or nothing is sent any more
                self._log_and_pause("selecting due deliveries", error)
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._wake_up or self._stopped.is_set(), wait)

    def _send_due(self) -> float | None:
        """Hand out due deliveries. Returns the seconds until the next poll; None: until woken up."""
        with self._changed:
            sent = set(self._in_progress)
            busy = Counter(self._in_progress.values())
        with self._service.transaction(writes=False) as tx:
            found = find_due(tx, THREADS - len(sent), busy, sent, MAX_PER_DESTINATION)
            any_fault = bool(found) and faults.any_fault(tx)
            signer = signing_secrets.current_signer(tx)
            next_at, now = next_due_at(tx), tx.real_now
        jobs: list[tuple[DueDelivery, FaultKind | None]] = [(due, None) for due in found]
        if any_fault:
            with self._service.transaction(writes=True) as tx:
                jobs = faults.decide(tx, found)
        for due, fault in jobs:
            self._hand_out(due, signer, fault)
        if len(jobs) < len(found):
            self._notify_change()  # other deliveries may take the place of those that faults hold
        return None if next_at is None else max((next_at - now).total_seconds(), MIN_WAIT_SECONDS)

    def _hand_out(self, due: DueDelivery, signer: Signer, fault: FaultKind | None) -> None:
        with self._changed:
            self._in_progress[due.id] = due.destination
        assert self._threads is not None  # noqa: S101 - for the type
        self._threads.submit(self._deliver, due, signer, fault)

    def _deliver(self, due: DueDelivery, signer: Signer, fault: FaultKind | None) -> None:
        try:
            if self._stopped.is_set():
                return
            made = self._attempter.attempt(due, signer, fault)
            # stop() may have aborted the attempt: then its result says nothing about the receiver.
            if not self._stopped.is_set():
                with self._service.transaction(writes=True) as tx:
                    settle(tx, due, made)
        except Exception as error:  # noqa: BLE001 - the delivery stays due and is sent again
            self._log_and_pause("delivery", error)
        finally:
            with self._changed:
                del self._in_progress[due.id]
            self._notify_change()

    def _notify_change(self) -> None:
        """Wake up the thread that hands out, and the callers of `flush`."""
        with self._changed:
            self._changes += 1
            self._wake_up = True
            self._changed.notify_all()

    def _log_and_pause(self, doing: str, error: Exception) -> None:
        """Log the type of the error only: its text may hold a body."""
        logger.error("%s failed, retrying: %s", doing, type(error).__name__)
        self._stopped.wait(ERROR_PAUSE_SECONDS)
