"""What an engine does for its inbox now and then: prune what is past its retention, note that it works."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from datetime import datetime

from billhook.engines.registration import Registration
from billhook.errors import BillhookError
from billhook.inbox import Inbox
from billhook.inbox.retention import Limits

__all__ = ["Upkeep"]

logger = logging.getLogger("billhook.engines")

FIRST_SECONDS = 60.0
EVERY_SECONDS = 3600.0
ANEW_SECONDS = 86_400.0
"""Between two passes from the beginning, for what was unfinished when the last one came by."""
FAILED_SECONDS = 300.0
BATCH_ROWS = 100
PAUSE_FACTOR = 9
"""The pause after a batch is so many times what the batch took: the inbox is others' nine tenths."""
LEAST_PAUSE_SECONDS = 0.05


class Upkeep:
    """Call `step` whenever there is time; it does a little when it is due, and never raises.

    Several processes may do it side by side: none waits for another's rows.
    """

    def __init__(
        self,
        inbox: Inbox,
        *,
        retention_days: float,
        key_days: float | None = None,
        registration: Registration | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inbox = inbox
        self._retention_days = retention_days
        self._key_days = key_days
        self._registration = registration
        self._monotonic = monotonic
        # Processes that started together do not look together.
        self._again_at = monotonic() + FIRST_SECONDS * (1 + random.random())  # noqa: S311 - not for secrecy
        self._anew_at = 0.0
        self._after = 0
        self._gone = 0

    def step(self, now: datetime) -> float:
        """Do a little if it is time; returns the seconds until the next."""
        pause = self._step(now)
        return pause if self._registration is None else min(pause, self._registration.step(now))

    def end(self) -> None:
        """Say that we work no longer. It never raises."""
        if self._registration is not None:
            self._registration.end()

    def _step(self, now: datetime) -> float:
        started = self._monotonic()
        if started >= self._again_at:
            try:
                pause = self._look(now, started)
            except BillhookError as error:
                pause = FAILED_SECONDS
                logger.warning("old deliveries stay for now: %s", error)
            except Exception:
                pause = FAILED_SECONDS
                logger.exception("old deliveries stay for now")
            self._again_at = self._monotonic() + pause
        return max(0.0, self._again_at - self._monotonic())

    def _look(self, now: datetime, started: float) -> float:
        """A batch; the pause after it. What was looked at once is passed over until the next day."""
        if started >= self._anew_at:
            self._after, self._anew_at = 0, started + ANEW_SECONDS
        limits = Limits.of(now, self._retention_days, self._key_days)
        found = self._inbox.prune(limits, self._after, BATCH_ROWS)
        self._after = found.after
        self._gone += found.total
        if not found.over:
            return max(LEAST_PAUSE_SECONDS, PAUSE_FACTOR * (self._monotonic() - started))
        if self._gone:
            logger.info("%d deliveries were past their retention", self._gone)
            self._gone = 0
        return EVERY_SECONDS
