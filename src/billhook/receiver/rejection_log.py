"""RejectionLog: log rejected deliveries at most once a second per source and cause, with their number.

Anyone can send requests that are rejected; without a limit they could flood the log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from billhook.logs import fields

__all__ = ["RejectionLog"]

logger = logging.getLogger("billhook.receiver")

INTERVAL_SECONDS = 1.0


@dataclass(slots=True)
class _Kind:
    """Rejections with one source and cause: their number since the last line, and the next line."""

    logged_at: float
    level: int = logging.NOTSET
    text: str = ""
    suppressed: int = 0


class RejectionLog:
    """Log the first rejection of a kind at once, then one line a second with the number since.

    A kind is a source and a cause. Both come from the configuration and the code, so their number is small
    no matter what a sender sends.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, log: logging.Logger = logger) -> None:
        self._monotonic = monotonic
        self._log = log
        self._lock = threading.Lock()
        self.kinds: dict[tuple[str, str], _Kind] = {}
        """Empty until the first rejection: what is called for every accepted delivery asks this first."""

    def record(self, source: str, cause: str, level: int, text: str) -> None:
        """Log `text` now, or count it into the next line of its kind."""
        now = self._monotonic()
        with self._lock:
            kind = self.kinds.get((source, cause))
            first = kind is None or (not kind.suppressed and now - kind.logged_at >= INTERVAL_SECONDS)
            if kind is None or first:
                self.kinds[source, cause] = _Kind(logged_at=now)
            else:
                kind.level, kind.text, kind.suppressed = level, text, kind.suppressed + 1
        if first:
            self._log.log(level, "%s", text, extra=fields(source=source, cause=cause))
        self.flush(now)

    def flush(self, now: float | None = None, *, all_of_them: bool = False) -> None:
        """Log the kinds whose last line is a second old, or `all_of_them` when the process ends."""
        if not self.kinds:
            return
        now = self._monotonic() if now is None else now
        due: list[tuple[str, str, _Kind, float]] = []
        with self._lock:
            for (source, cause), kind in self.kinds.items():
                seconds = now - kind.logged_at
                if kind.suppressed and (all_of_them or seconds >= INTERVAL_SECONDS):
                    due.append((source, cause, kind, seconds))
                    self.kinds[source, cause] = _Kind(logged_at=now)
        for source, cause, kind, seconds in due:
            extra = fields(source=source, cause=cause, count=kind.suppressed)
            text = "%s; %d times in %.0f s"
            self._log.log(kind.level, text, kind.text, kind.suppressed, seconds, extra=extra)
