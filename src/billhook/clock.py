"""Clocks, injected where time is needed: all return aware UTC, and tests move one instead of sleeping."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_AGE = re.compile(r"([0-9]{1,6})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> datetime:
        """Return the current time as an aware UTC datetime."""
        ...


class SystemClock:
    """The system clock."""

    now = staticmethod(partial(datetime.now, UTC))


class FrozenClock:
    """A clock that stands still until it is moved.

    >>> clock = FrozenClock(datetime(2026, 1, 31, tzinfo=UTC))
    >>> clock.advance(seconds=90)
    >>> clock.now()
    datetime.datetime(2026, 1, 31, 0, 1, 30, tzinfo=datetime.timezone.utc)
    """

    def __init__(self, at: datetime) -> None:
        """Stand at `at`; a naive datetime raises ValueError, for it names no moment."""
        if at.tzinfo is None:
            raise ValueError(f"FrozenClock needs an aware datetime, got the naive {at.isoformat()}")
        self._at = at.astimezone(UTC)

    def now(self) -> datetime:
        return self._at

    def advance(self, *, seconds: float) -> None:
        """Move forward (or back, with a negative number) by `seconds`."""
        self._at += timedelta(seconds=seconds)


CLOCK_OFF_SECONDS = 5.0
"""How far a machine's clock may be from the database server's before it is worth a word."""


def clock_off(ahead_seconds: float) -> str | None:
    """Return in words that this machine's clock is so far ahead of the server's; None if it is close."""
    if abs(ahead_seconds) <= CLOCK_OFF_SECONDS:
        return None
    side = "ahead of" if ahead_seconds > 0 else "behind"
    return f"this machine's clock is {format_duration(abs(ahead_seconds))} {side} the database server's"


def parse_duration(text: str) -> timedelta:
    """Return the duration that an operator wrote: 90s, 30m, 2h, 7d or 1w. Raises ValueError."""
    age = _AGE.fullmatch(text)
    if age is None:
        raise ValueError(f"{text!r} is not a duration: write one such as 90s, 30m, 2h or 7d")
    return timedelta(seconds=int(age[1]) * _SECONDS[age[2]])


def parse_time(text: str, now: datetime) -> datetime:
    """Return the time that an operator wrote: an age (90s, 30m, 2h, 7d, 1w), or ISO 8601.

    Without an offset it is UTC. Raises ValueError, with a text that says what to write.
    """
    try:
        if _AGE.fullmatch(text):
            return now - parse_duration(text)
        moment = datetime.fromisoformat(text)
        # UTC, as everything that billhook shows: a value copied from a table means the same here.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"{text!r} is not a time: write an age such as 90s, 30m, 2h, 7d, or 2026-01-31T12:00"
        raise ValueError(message) from None


def format_duration(seconds: float) -> str:
    """Return a duration in one or two units: `340 ms`, `12 s`, `3 min 20 s`, `2 d 4 h`."""
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms".replace(".0 ms", " ms")
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < 60:
        return f"{seconds:.0f} s"
    whole = int(seconds)
    for (size, unit), (below, smaller) in zip(_UNITS, (*_UNITS[1:], (1, "s")), strict=True):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(seconds)  # a minute is the smallest of the units


def format_time(moment: datetime) -> str:
    """Write a moment as all of billhook does, to the second."""
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def short_time(moment: datetime, now: datetime) -> str:
    """Return a moment as `18:45`, with its date if that is not today's."""
    return f"{moment:%H:%M}" if moment.date() == now.date() else f"{moment:%Y-%m-%d %H:%M}"


def format_ago(moment: datetime | None, now: datetime) -> str:
    """Return how long before `now` a moment was, as `3 min ago` or `just now`; `in 10 s` for one to come."""
    if moment is None:
        return ""
    seconds = int((now - moment).total_seconds())
    if seconds == 0:
        return "just now"
    number, unit = format_duration(abs(seconds)).split(" ")[:2]  # one unit is enough here
    return f"{number} {unit} ago" if seconds >= 0 else f"in {number} {unit}"
