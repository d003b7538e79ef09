"""Decide when a type has stopped coming: by the gaps that its deliveries really had.

Deliveries come in bursts, so an average says nothing. What is known are the hours in which any came, of the
last 31 days, and the days of those before. A type is silent when it has not come for twice its longest gap:

    every hour for 30 days, then none              silent after 4 h
    by day, with pauses of 12 h at night           silent after 26 h
    on working days, 62 h at the weekend           silent after 5 days
    5,000 in a minute, twice in a month            never: one gap is known
    50,000 at once in an inbox an hour old         never: no gap is known

Fewer than five gaps say nothing, and neither does less than a week: it may have been all one burst, and no
weekend was in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from billhook.clock import format_duration
from billhook.inbox.counting.counts import ACCEPTED_HOURS_KEPT_FOR, OTHER_TYPES, Counted, hour_of
from billhook.inbox.inbox import Inbox

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_LOOK_BACK = timedelta(days=62)
"""Two months: the gap before a month's last burst is known while the one after it lasts."""
_FEWEST_GAPS = 5
_KNOWN_FOR = timedelta(days=7)
_ROOM = 2


class Silence(NamedTuple):
    """A type that has stopped coming: its last delivery, and how long its longest gap was at most."""

    event_type: str
    last_at: datetime
    longest: timedelta

    @property
    def text(self) -> str:
        """What has stopped, and after which gap that is said."""
        longest = format_duration(self.longest.total_seconds())
        return f"{self.event_type} has stopped coming: its longest gap in 30 days was at most {longest}"


def read_silent_types(inbox: Inbox, now: datetime) -> list[Silence]:
    """Return the types that have stopped coming, by name."""
    since = hour_of(now).replace(hour=0) - _LOOK_BACK
    counts = inbox.read_counts("hour", "event_type", "what", since=since, only=(Counted.ACCEPTED,))
    hours: defaultdict[str, set[datetime]] = defaultdict(set)
    last: dict[str, datetime] = {}
    for key, sums in counts.items():
        if key.event_type not in ("", OTHER_TYPES):
            hours[key.event_type].add(key.hour)
            last[key.event_type] = max(sums.last_at, last.get(key.event_type, sums.last_at))
    found = ((name, longest_gap(hours[name], last[name], now)) for name in sorted(last))
    return [
        Silence(name, last[name], gap)
        for name, gap in found
        if gap is not None and now - last[name] > _ROOM * gap
    ]


def longest_gap(hours: Collection[datetime], last_at: datetime, now: datetime) -> timedelta | None:
    """Return how long the longest gap of a type was at most; None if too little is known of it.

    `hours` are those in which it came: of more than 31 days ago only the day counts.
    """
    known_since = hour_of(now).replace(hour=0) - ACCEPTED_HOURS_KEPT_FOR
    exact = sorted(hour for hour in hours if hour >= known_since)
    days = sorted({hour.replace(hour=0) for hour in hours if hour < known_since})
    gaps = [after - before + _HOUR for before, after in pairwise(exact)]
    if len(gaps) < _FEWEST_GAPS or last_at - min((*days, *exact)) < _KNOWN_FOR:
        return None
    # Between two days at least the days between them are empty.
    older = [after - before - _DAY for before, after in pairwise([*days, *exact[:1]])]
    return max(gaps + older)
