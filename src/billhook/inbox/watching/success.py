"""Read which part of its finished runs each handler succeeded with: in the last hour, day and week.

An attempt that failed and was tried again is no failure: counted is what became of the runs in the end. A
replayed run is counted again. Discarded ones are not counted: they neither succeeded nor failed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import NamedTuple

from billhook.inbox.counting.counts import Counted, hour_of
from billhook.inbox.inbox import Inbox

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


class Success(NamedTuple):
    """How many runs of a handler succeeded in some time, and how many died."""

    succeeded: int = 0
    dead: int = 0

    @property
    def rate(self) -> float | None:
        """The part that succeeded, from 0 to 1; None where nothing was finished."""
        finished = self.succeeded + self.dead
        return self.succeeded / finished if finished else None

    @property
    def text(self) -> str:
        """The part in per cent, empty where nothing was finished: `100 %` only if all succeeded."""
        if self.rate is None:
            return ""
        if self.rate in (0, 1):
            return f"{self.rate * 100:.0f} %"
        return f"{min(99.9, max(0.1, round(self.rate * 100, 1)))} %"


class SuccessOverTime(NamedTuple):
    """The success of a handler in this hour and the one before, in 24 hours, and in seven days (UTC)."""

    hour: Success = Success()
    day: Success = Success()
    week: Success = Success()

    @property
    def text(self) -> str:
        """The three in words, where there is any: `100 % in 1 h, 99.2 % in 24 h, 98.7 % in 7 d`."""
        each = zip((one.text for one in self), ("1 h", "24 h", "7 d"), strict=True)
        return ", ".join(f"{text} in {time}" for text, time in each if text)


def read_success(inbox: Inbox, now: datetime) -> dict[str, SuccessOverTime]:
    """Return the success of each handler that finished a run in seven days, by its present name."""
    hour = hour_of(now)
    since = {"hour": hour - _HOUR, "day": hour - _DAY, "week": hour.replace(hour=0) - 6 * _DAY}
    counts = inbox.read_counts(
        "hour", "handler", "what", since=min(since.values()), only=(Counted.SUCCEEDED, Counted.DEAD)
    )
    numbers: defaultdict[str, Counter[tuple[str, Counted]]] = defaultdict(Counter)
    for key, sums in counts.items():
        for name, first in since.items():
            if key.hour >= first:
                numbers[key.handler][name, Counted(key.what)] += sums.number
    return {
        handler: SuccessOverTime(
            *(Success(found[name, Counted.SUCCEEDED], found[name, Counted.DEAD]) for name in since)
        )
        for handler, found in numbers.items()
    }
