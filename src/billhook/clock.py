"""Clocks, injected where time is needed: all return aware UTC, and tests move one instead of sleeping."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["Clock", "FrozenClock", "SystemClock"]


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> datetime:
        """Return the current time as an aware UTC datetime."""
        ...


class SystemClock:
    """The system clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


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
