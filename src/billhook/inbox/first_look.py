"""Looking at the database as a process starts, without being held up by a server that does not answer."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait

from billhook.errors import InboxUnavailable
from billhook.inbox.threads import start_thread

__all__ = ["FirstLook"]

logger = logging.getLogger("billhook.inbox")


class FirstLook:
    """One look, in a thread of its own, which goes on when nobody waits for it any more."""

    def __init__(self, look: Callable[[], None], place: str) -> None:
        """`look` raises what is wrong with the database at `place`. Raises OutOfResources."""
        self._place = place
        self._outcome: Future[None] = Future()
        self._lock = threading.Lock()
        self._until: float | None = None
        self._pid = os.getpid()
        start_thread(self._see, "billhook-first-look", look)

    def result(self, timeout_seconds: float) -> None:
        """Return when all is well. Raises what the look raised; InboxUnavailable if it takes longer."""
        if not self._over(timeout_seconds):
            self._outcome.add_done_callback(self._tell)
            raise InboxUnavailable(f"the inbox {self._place} has not answered within {timeout_seconds:g} s")
        self._outcome.result()

    def wait(self, timeout_seconds: float) -> float:
        """Wait until it is over, or so long since the first who waited here came; returns the seconds spent.

        Those who come later do not wait: they have a deadline of their own. Raises InboxUnavailable.
        """
        if self._outcome.done() or self._pid != os.getpid():  # a fork's child looks for itself
            return 0.0
        started = time.monotonic()
        with self._lock:
            if self._until is None:
                self._until = started + timeout_seconds
        if started >= self._until:
            return 0.0
        if not self._over(self._until - started):
            raise InboxUnavailable(f"the inbox {self._place} has not answered since this process began")
        return time.monotonic() - started

    def _over(self, timeout_seconds: float) -> bool:
        return bool(wait([self._outcome], timeout_seconds).done)

    def _see(self, look: Callable[[], None]) -> None:
        try:
            look()
        except BaseException as error:  # noqa: BLE001 - whoever waits is told, whatever it is
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(None)

    def _tell(self, outcome: Future[None]) -> None:
        """It is over, and nobody waited: the process has begun without it."""
        error = outcome.exception()
        if error is None:
            logger.info("the inbox %s answers now", self._place)
        else:
            logger.error("%s; until it can be used, deliveries are answered 503", error)
