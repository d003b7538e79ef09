"""The limits that an operator sets with `billhook status --max-…`; each is a parameter of a condition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from billhook.inbox.counts import Counted, hour_of
from billhook.inbox.inbox import Inbox
from billhook.inbox.overview import read_periods

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits that an operator sets; None and empty: no limit."""

    max_age: timedelta | None = None
    """The highest age of the oldest unfinished delivery."""
    max_dead: int | None = None
    """How many deliveries may be dead."""
    max_silence: Mapping[str, timedelta] = field(default_factory=dict)
    """How long ago the last delivery of an event type may be; "*" stands for any type."""
    max_refused: tuple[int, int] | None = None
    """How many deliveries may be refused, in how many hours."""


NO_THRESHOLDS = Thresholds()


def refused_within(inbox: Inbox, now: datetime, hours: int) -> float:
    """Estimate the refusals of the last hours; of the earliest hour only the part within the range counts."""
    hour = hour_of(now)
    periods = read_periods(inbox, hour - hours * _HOUR, hour + _HOUR, _HOUR, (Counted.REFUSED,))
    first, *others = [period.counted[Counted.REFUSED] for period in periods]
    return first * (1 - (now - hour) / _HOUR) + sum(others)
