"""Whether the inbox can be written, with a deadline: a hung one keeps one thread, not all who ask."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

from billhook.errors import DeadlinePassed
from billhook.inbox.threads import start_thread

__all__ = ["Probe"]


class _Asked:
    """One question of one process: its answer, and when a good one came, on the monotonic clock."""

    def __init__(self) -> None:
        self.answer: Future[None] = Future()
        self.committed_at = -math.inf
        self._pid = os.getpid()

    def serves(self, not_before: float) -> bool:
        """Whether who asks now may share it: nobody has the answer yet, or it was good and is young."""
        return self._pid == os.getpid() and (not self.answer.done() or self.committed_at > not_before)


class Probe:
    """Asks by calling `write`, which writes and commits something; all who ask at once share the answer."""

    def __init__(self, write: Callable[[], None], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._asked: _Asked | None = None

    def ask(self, timeout_seconds: float, max_age_seconds: float = 0.0) -> None:
        """Return if the write was committed. Raises what it raised, DeadlinePassed or OutOfResources.

        A good answer of up to `max_age_seconds` ago is given again; a failed write left nothing, and may be
        tried at once.
        """
        with self._lock:
            if self._asked is None or not self._asked.serves(self._monotonic() - max_age_seconds):
                self._asked = self._begin()
            answer = self._asked.answer
        try:
            answer.result(timeout_seconds)
        except FutureTimeout:
            raise DeadlinePassed(f"no write within {timeout_seconds:g} s") from None

    def doubt(self) -> None:
        """Somebody else's write failed: a good answer from before is not given again."""
        asked = self._asked
        if asked is not None:
            asked.committed_at = -math.inf

    def _begin(self) -> _Asked:
        asked = _Asked()
        start_thread(self._find_out, "billhook-probe", asked)
        return asked

    def _find_out(self, asked: _Asked) -> None:
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001 - whoever asked is told, whatever it is
            asked.answer.set_exception(error)
        else:
            asked.committed_at = self._monotonic()
            asked.answer.set_result(None)
