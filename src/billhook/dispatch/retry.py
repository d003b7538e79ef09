"""When a failed attempt is tried again: a visible list of waits, and a decision that is a function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from billhook.errors import ConfigError, Discard, Retry

__all__ = ["Decision", "RetrySchedule", "decide"]


LONGEST_SECONDS = 31 * 86_400


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """The wait before each further attempt, in seconds; after the last one a run is dead."""

    delays_seconds: tuple[float, ...]

    @classmethod
    def of(cls, delays_seconds: Iterable[float]) -> RetrySchedule:
        """Check and keep the waits; each is 0 seconds to 31 days. Raises ConfigError."""
        try:
            delays = tuple(float(delay) for delay in delays_seconds)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(f"the waits {delays_seconds!r} must be seconds, as (10, 60)") from None
        for delay in delays:
            if not 0 <= delay <= LONGEST_SECONDS:
                raise ConfigError(f"a retry after {delay!r} seconds: it must be from 0 to 2678400 (31 days)")
        return cls(delays)

    @property
    def attempts(self) -> int:
        """How often a handler is called at most."""
        return len(self.delays_seconds) + 1


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows an attempt: `retry_after_seconds`, or the end: `discarded` or dead."""

    retry_after_seconds: float | None = None
    discarded: bool = False

    @property
    def dead(self) -> bool:
        return self.retry_after_seconds is None and not self.discarded


def decide(error: BaseException, attempt: int, schedule: RetrySchedule) -> Decision:
    """What to do after attempt number `attempt` (from 1) ended with `error`."""
    if isinstance(error, Discard):
        return Decision(discarded=True)
    if attempt >= schedule.attempts:
        return Decision()
    # A user's own kind of Retry may have set anything, or nothing.
    after_seconds = getattr(error, "after_seconds", None) if isinstance(error, Retry) else None
    if isinstance(after_seconds, int | float) and 0 <= after_seconds <= LONGEST_SECONDS:
        return Decision(retry_after_seconds=after_seconds)
    return Decision(retry_after_seconds=schedule.delays_seconds[attempt - 1])
