"""RejectionLog: log rejected deliveries at most once a minute per source and cause, with their number.

Anyone can send requests that are rejected; without a limit they could flood the log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["RejectionLog"]

logger = logging.getLogger("billhook.receiver")

MINUTE_SECONDS = 60.0


@dataclass(slots=True)
class _Kind:
    """Rejections with one source and cause: their number since the last line, and the next line."""

    told_at: float
    level: int = logging.NOTSET
    text: str = ""
    untold: int = 0


class RejectionLog:
    """Log the first rejection of a kind at once, then one line a minute with the number since.

    A kind is a source and a cause. Both come from the configuration and the code, so their number is small
    no matter what a sender sends.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def record(self, source: str, cause: str, level: int, text: str) -> None:
        """Log `text` now, or count it into the next line of its kind."""
        now = self._monotonic()
        with self._lock:
            kind = self._kinds.get((source, cause))
            first = kind is None or (not kind.untold and now - kind.told_at >= MINUTE_SECONDS)
            if kind is None or first:
                self._kinds[source, cause] = _Kind(told_at=now)
            else:
                kind.level, kind.text, kind.untold = level, text, kind.untold + 1
        if first:
            logger.log(level, "%s", text)
        self.flush(now)

    def flush(self, now: float | None = None, *, all_of_them: bool = False) -> None:
        """Log the kinds whose last line is a minute old, or `all_of_them` when the process ends."""
        if not self._kinds:  # called for every accepted delivery, so return before taking the lock
            return
        now = self._monotonic() if now is None else now
        due: list[tuple[_Kind, float]] = []
        with self._lock:
            for name, kind in self._kinds.items():
                seconds = now - kind.told_at
                if kind.untold and (all_of_them or seconds >= MINUTE_SECONDS):
                    due.append((kind, seconds))
                    self._kinds[name] = _Kind(told_at=now)
        for kind, seconds in due:
            logger.log(kind.level, "%s; %d times in %.0f s", kind.text, kind.untold, seconds)
