"""An engine's row in the inbox's table of workers, for people who ask whether anybody works."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime

from billhook.inbox import Inbox
from billhook.inbox.workers import Worker

__all__ = ["EVERY_SECONDS", "Registration"]

logger = logging.getLogger("billhook.engines")

EVERY_SECONDS = 20.0


class Registration:
    """Call `step` whenever there is time: it writes the row when that is due. None of it ever raises."""

    def __init__(
        self,
        inbox: Inbox,
        owner: str,
        engine: str,
        handlers: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`owner` names this process, `handlers` returns how many handlers it has at that moment."""
        self._inbox = inbox
        self._owner = owner
        self._engine = engine
        self._handlers = handlers
        self._monotonic = monotonic
        self._started_at: datetime | None = None
        self._again_at = -1.0

    def step(self, now: datetime) -> float:
        """Write that we are here if it is time; return the seconds until the next."""
        if self._started_at is None or self._monotonic() >= self._again_at:
            self._started_at = self._started_at or now
            try:
                seen = Worker(self._owner, self._engine, self._handlers(), self._started_at)
                self._inbox.note_worker(seen, now)
            except Exception as error:  # noqa: BLE001 - nothing depends on it, and the next turn tells more
                logger.warning("it is not noted that this worker runs: %s", error)
            self._again_at = self._monotonic() + EVERY_SECONDS
        return max(0.0, self._again_at - self._monotonic())

    def end(self) -> None:
        """Delete the row: this engine ended in order."""
        if self._started_at is not None:
            self._started_at = None
            try:
                self._inbox.forget_worker(self._owner)
            except Exception as error:  # noqa: BLE001 - it is deleted when it was not seen for long
                logger.warning("it is not noted that this worker ended: %s", error)
