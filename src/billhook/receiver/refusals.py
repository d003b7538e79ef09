"""What is logged of refused deliveries: one line a minute for each cause, with the number of them.

Anybody may be refused, as often as they like, and a log that they can fill drowns what matters in it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Refusals"]

logger = logging.getLogger("billhook.receiver")

MINUTE_SECONDS = 60.0


@dataclass(slots=True)
class _Kind:
    """Refusals alike: how many have come since the last line, and what the next line would say."""

    told_at: float
    level: int = logging.NOTSET
    text: str = ""
    untold: int = 0


class Refusals:
    """The log's lines of one process: the first of a kind at once, then one a minute that says how many.

    A kind is a source and a cause: both come from the configuration and the code, so there are few.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def note(self, source: str, cause: str, level: int, text: str) -> None:
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
        self.tell(now)

    def tell(self, now: float | None = None, *, all_of_them: bool = False) -> None:
        """Log what was counted a minute ago or longer, or `all_of_them`: nobody counts on afterwards."""
        if not self._kinds:  # nothing was ever refused: every accepted delivery comes by here
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
