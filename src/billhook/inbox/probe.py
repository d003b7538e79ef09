"""Whether the inbox can be written, with a deadline: a hung one keeps one thread, not all who ask."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

from billhook.errors import DeadlinePassed

__all__ = ["Probe"]


class Probe:
    """Asks by calling `write`, which writes and commits something; all who ask at once share the answer."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._asking: tuple[int, Future[None]] | None = None

    def ask(self, timeout_seconds: float) -> None:
        """Return if the write was committed. Raises what it raised, or DeadlinePassed."""
        with self._lock:
            if self._asking is None or self._asking[0] != os.getpid() or self._asking[1].done():
                self._asking = (os.getpid(), Future())
                arguments = (self._asking[1],)
                threading.Thread(
                    target=self._answer, args=arguments, name="billhook-probe", daemon=True
                ).start()
            answer = self._asking[1]
        try:
            answer.result(timeout_seconds)
        except FutureTimeout:
            raise DeadlinePassed(f"no write within {timeout_seconds:g} s") from None

    def _answer(self, answer: Future[None]) -> None:
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001 - whoever asked is told, whatever it is
            answer.set_exception(error)
        else:
            answer.set_result(None)
