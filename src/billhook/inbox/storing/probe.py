"""Check the database in a separate thread, so that a database that hangs blocks no request.

The readiness probe asks whether a write can be committed; the start-up check whether the schema fits.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeout

from billhook.basics.concurrency import reset_in_child, start_thread
from billhook.errors import DeadlinePassed, InboxUnavailable
from billhook.errors.program import may_receive
from billhook.logs import fields

logger = logging.getLogger("billhook.inbox")


class Probe:
    """Checks by calling `write`, which commits something; callers at the same time share the answer."""

    def __init__(self, write: Callable[[], None], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._monotonic = monotonic
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._answer: Future[None] | None = None
        self._started_at = 0.0
        self._committed_at = -math.inf

    def ask(self, timeout_seconds: float, max_age_seconds: float = 0.0) -> None:
        """Return if the write was committed. Raises what it raised, DeadlinePassed or OutOfResources.

        A success up to `max_age_seconds` ago is used again; after a failure the write is tried again. The
        time counts from the start of the write: while a database hangs, later callers do not wait again.
        """
        with self._lock:
            now = self._monotonic()
            answer = self._answer
            # Shared by all callers: while a database hangs, probing it every second starts one thread.
            if answer is None or (answer.done() and self._committed_at <= now - max_age_seconds):
                answer, self._committed_at = Future(), -math.inf
                start_thread(_run, "billhook-probe", self._find_out, answer)
                # Only now: a check without a thread would never be answered.
                self._answer, self._started_at = answer, now
            left = self._started_at + timeout_seconds - now
        try:
            answer.result(max(0.0, left))
        except FutureTimeout:
            raise DeadlinePassed(f"no write within {timeout_seconds:g} s") from None

    def discard_answer(self) -> None:
        """Forget an earlier success: another write has failed since."""
        # No lock: the committer must not wait for a probe that is starting its thread.
        self._committed_at = -math.inf

    def _find_out(self) -> None:
        self._write()
        self._committed_at = self._monotonic()


def unavailable_text() -> str:
    """Return what is logged of an inbox that is away at the start of a process; `%s` is its error."""
    if may_receive():
        return "inbox unavailable, deliveries get 503 until it recovers: %s"
    return "inbox unavailable to this command: %s"


class StartupCheck:
    """A check at the start of a process; its thread continues when the caller no longer waits."""

    def __init__(self, check: Callable[[], None], display_url: str) -> None:
        """`check` raises what is wrong with the database at `display_url`. Raises OutOfResources."""
        self._display_url = display_url
        self._unavailable_text = unavailable_text()
        self._result: Future[None] = Future()
        self._until: float | None = None
        reset_in_child(self._end_in_child)
        start_thread(_run, "billhook-startup-check", check, self._result)

    def _end_in_child(self) -> None:
        # The thread is the parent's: a child connects at its first use, as without a check.
        self._result = Future()
        self._result.set_result(None)

    @property
    def done(self) -> bool:
        """Whether the check is over, with any result."""
        return self._result.done()

    def result(self, timeout_seconds: float) -> None:
        """Return when all is well. Raises what the check raised; InboxUnavailable if it takes longer."""
        if not wait([self._result], timeout_seconds).done:
            self._result.add_done_callback(self._log)
            raise InboxUnavailable(
                f"the inbox {self._display_url} has not answered within {timeout_seconds:g} s"
            )
        self._result.result()

    def wait(self, timeout_seconds: float) -> None:
        """Wait until the check is over, up to a time after the first call.

        Later callers do not wait that long again: they have deadlines of their own. Raises InboxUnavailable.
        """
        self._until = self._until or time.monotonic() + timeout_seconds
        left = self._until - time.monotonic()
        if left > 0 and not wait([self._result], left).done:
            raise InboxUnavailable(f"the inbox {self._display_url} has not answered since this process began")

    def _log(self, result: Future[None]) -> None:
        """Log the late result: the process has started without it."""
        error = result.exception()
        if error is None:
            logger.info("inbox %s is available again", self._display_url)
        else:
            logger.error(self._unavailable_text, error, extra=fields(cause=error))


def _run(check: Callable[[], None], result: Future[None]) -> None:
    try:
        check()
    except BaseException as error:  # noqa: BLE001 - every caller gets it, of any kind
        result.set_exception(error)
    else:
        result.set_result(None)
