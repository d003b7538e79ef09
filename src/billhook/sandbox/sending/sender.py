"""Sending what is due, in threads of its own.

One thread looks what is due and hands it out; it is woken by a commit, by an attempt that ended and by the
next time on the schedule. Which ones are under way is known here alone: in the database they stay due until
it is written down what became of them, so after a crash they are sent again, and at least once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from billhook.errors import ConfigError
from billhook.sandbox.sending import faults, signing_secrets
from billhook.sandbox.sending.attempt import Attempter
from billhook.sandbox.sending.due import Due, count_due, find_due, next_due_at, settle
from billhook.sandbox.sending.fault_kind import FaultKind
from billhook.sandbox.sending.http_post import Poster
from billhook.sandbox.sending.signing_secrets import Signer

if TYPE_CHECKING:
    from billhook.sandbox.sandbox import Sandbox

__all__ = ["Sender"]

THREADS = 32
PER_DESTINATION = 4
"""At once: one receiver that hangs takes no more of the threads."""
SHORTEST_WAIT_SECONDS = 0.05
AFTER_TROUBLE_SECONDS = 1.0

logger = logging.getLogger("billhook.sandbox")


class Sender:
    """Delivers until it is stopped; asleep while there is nothing due."""

    def __init__(self, sandbox: Sandbox) -> None:
        """Be ready; ConfigError for options that cannot be used. The database need not be open yet."""
        self._sandbox = sandbox
        options = sandbox.options
        signing_secrets.check_given(options)
        if not options.delivery_timeout_seconds > 0 or not all(wait >= 0 for wait in options.retry_seconds):
            raise ConfigError("delivery_timeout_seconds is over 0, and no retry_seconds are below 0")
        if options.keep_events < 1:
            raise ConfigError("keep_events is 1 at least")
        self._poster = Poster(options.delivery_timeout_seconds, allow_private=options.allow_private)
        self._attempter = Attempter(self._poster, sandbox.clock.real)
        self._changed = threading.Condition()
        self._rung = False
        self._changes = 0
        self._stopped = threading.Event()
        self._under_way: dict[str, str] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin with all that is due, from before a crash as well."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sandbox-sender")
        self._thread = threading.Thread(target=self._run, name="sandbox-sender", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look what is due: something was raised, or the machine's clock was moved."""
        with self._changed:
            self._rung = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Send no more. What is under way is broken off, and sent again after the next start."""
        self._stopped.set()
        self.wake()
        if self._thread is not None:
            self._thread.join()
        self._poster.close()
        if self._threads is not None:
            self._threads.shutdown(wait=True)

    def flush(self, timeout_seconds: float) -> int:
        """Wait until nothing is due now, for so long at most. How many are due all the same."""
        ends = time.monotonic() + timeout_seconds
        self.wake()
        while True:
            with self._changed:
                seen = self._changes
            with self._sandbox.transaction(writes=False) as tx:
                due = count_due(tx)
            left = ends - time.monotonic()
            if not due or left <= 0 or self._stopped.is_set():
                return due
            with self._changed:
                self._changed.wait_for(lambda: self._changes != seen, left)  # noqa: B023 - called at once

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self._changed:
                self._rung = False
            try:
                wait = self._send_due()
            except Exception as error:  # noqa: BLE001 - a thread that ends would send nothing any more
                self._trouble("looking what is due", error)
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._rung or self._stopped.is_set(), wait)

    def _send_due(self) -> float | None:
        """Hand out what is due. Gives the seconds until it is time to look again; None: until woken."""
        with self._changed:
            sent = set(self._under_way)
            busy = Counter(self._under_way.values())
        with self._sandbox.transaction(writes=False) as tx:
            found = find_due(tx, THREADS - len(sent), busy, sent, PER_DESTINATION)
            any_fault = bool(found) and faults.any_fault(tx)
            signer = signing_secrets.signer(tx)
            next_at, now = next_due_at(tx), tx.real_now
        jobs: list[tuple[Due, FaultKind | None]] = [(due, None) for due in found]
        if any_fault:
            with self._sandbox.transaction(writes=True) as tx:
                jobs = faults.decide(tx, found)
        for due, fault in jobs:
            self._hand_out(due, signer, fault)
        if len(jobs) < len(found):
            self._tell_change()  # others may go in the place of those that are held
        return None if next_at is None else max((next_at - now).total_seconds(), SHORTEST_WAIT_SECONDS)

    def _hand_out(self, due: Due, signer: Signer, fault: FaultKind | None) -> None:
        with self._changed:
            self._under_way[due.id] = due.destination
        assert self._threads is not None  # noqa: S101 - for the type
        self._threads.submit(self._deliver, due, signer, fault)

    def _deliver(self, due: Due, signer: Signer, fault: FaultKind | None) -> None:
        try:
            if self._stopped.is_set():
                return
            made = self._attempter.attempt(due, signer, fault)
            if not self._stopped.is_set():  # else it may be we who broke it off
                with self._sandbox.transaction(writes=True) as tx:
                    settle(tx, due, made)
        except Exception as error:  # noqa: BLE001 - it stays due, and is sent again
            self._trouble("sending", error)
        finally:
            with self._changed:
                del self._under_way[due.id]
            self._tell_change()

    def _tell_change(self) -> None:
        """It is time to look again, for the thread that hands out and for those that wait in `flush`."""
        with self._changed:
            self._changes += 1
            self._rung = True
            self._changed.notify_all()

    def _trouble(self, doing: str, error: Exception) -> None:
        """Say what kind of error it was: its text might hold a body."""
        logger.error("%s failed (%s): it is tried again", doing, type(error).__name__)
        self._stopped.wait(AFTER_TROUBLE_SECONDS)
