"""Decide when a failed attempt is retried, by a schedule of waits."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from billhook.clock import format_duration
from billhook.errors import ConfigError, Retry

LONGEST_SECONDS = 31 * 86_400


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """The wait before each further attempt, in seconds; after the last one a run is dead."""

    delays_seconds: tuple[float, ...]

    @classmethod
    def of(cls, delays_seconds: Iterable[float]) -> RetrySchedule:
        """Check the waits, each 0 seconds to 31 days, and make a schedule of them. Raises ConfigError."""
        try:
            delays = tuple(float(delay) for delay in delays_seconds)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(
                f"the waits between attempts are {delays_seconds!r}: each must be a number of seconds, as in "
                "[10, 60]"
            ) from None
        for delay in delays:
            # This form of the comparison also refuses NaN.
            if not 0 <= delay <= LONGEST_SECONDS:
                raise ConfigError(
                    f"a wait between attempts is {delay:g} seconds: it must be from 0 to 2678400 (31 days)"
                )
        return cls(delays)

    def __str__(self) -> str:
        """Return the waits in words, as `after 10 s, 1 min`."""
        return (
            f"after {', '.join(map(format_duration, self.delays_seconds))}" if self.delays_seconds else "none"
        )

    @property
    def attempts(self) -> int:
        """The number of attempts, the first one included."""
        return len(self.delays_seconds) + 1


def retry_after(
    error: BaseException, attempt: int, schedule: RetrySchedule, *, jitter: float = 0.0
) -> float | None:
    """Return the seconds after which attempt number `attempt` (from 1), which raised `error`, is repeated.

    None for the last one. A wait of the schedule is longer by a random part of up to `jitter`, so that runs
    that failed together, because one server was down, are not all retried together. It is never shorter.
    """
    if attempt >= schedule.attempts:
        return None
    # A subclass of Retry may set after_seconds to any value, or not at all.
    after_seconds = getattr(error, "after_seconds", None) if isinstance(error, Retry) else None
    if isinstance(after_seconds, int | float) and 0 <= after_seconds <= LONGEST_SECONDS:
        return after_seconds
    later = 1 + jitter * random.random()  # noqa: S311 - no secret
    return schedule.delays_seconds[attempt - 1] * later
