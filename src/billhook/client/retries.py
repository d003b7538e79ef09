"""Retries of API calls: which errors are retried, the back-off, and the deadline of a whole call."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from billhook.client.operation import AnyOperation
from billhook.clock import Clock
from billhook.errors import ApiError, ConfigError, InternalError, RateLimitExceeded, ServiceUnavailable

_FOR_EVER_SECONDS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """States how often and for how long a call is retried.

    `total_seconds` limits a whole call: logging in, every attempt, and the waits between them. A wait begins
    at `first_wait_seconds` and doubles up to `longest_wait_seconds`, less a random part of up to half of it.
    If the service sends Retry-After, the client waits that long and a little longer. A wait that would exceed
    the total is not begun.
    """

    attempts: int = 5
    total_seconds: float = 60.0
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Raise ConfigError for a value outside its limits."""
        if not 1 <= self.attempts <= 100:
            raise ConfigError(f"attempts is {self.attempts!r}: it must be from 1 to 100")
        for name in ("total_seconds", "first_wait_seconds", "longest_wait_seconds"):
            seconds = getattr(self, name)
            if not 0 < seconds <= 86_400:
                raise ConfigError(f"{name} is {seconds!r}: it must be above 0 and at most 86400")

    def wait_seconds(self, attempt: int, asked_seconds: float | None) -> float:
        """Return the wait after attempt number `attempt` (from 1); `asked_seconds` is from Retry-After."""
        wait = min(self.longest_wait_seconds, self.first_wait_seconds * 2.0 ** (attempt - 1))
        # Clients that failed at the same time must not retry at the same time.
        chance = random.random()  # noqa: S311 - spreads clients over time, keeps nothing secret
        if asked_seconds is None:
            return wait * (1 - chance / 2)
        return asked_seconds + min(wait, 1.0) * chance


class CallDeadline:
    """The deadline of one call, by an injected clock; as a whole number, the time-out of a read or write.

    A fixed time-out would bound each read alone: a service that sends its headers byte by byte could hold the
    caller for hours, and the HTTP library reads headers without a check of ours in between. For an argument
    that is not a float, `socket.settimeout` calls `__index__` each time, so the seconds are whole.
    """

    def __init__(self, clock: Clock, seconds: float, silence_seconds: float = math.inf) -> None:
        """Begin a call that ends in `seconds`.

        `silence_seconds` is the longest time that the service may send nothing.
        """
        self._clock = clock
        self._ends_at = clock.now() + timedelta(seconds=seconds)
        self._silence_seconds = silence_seconds

    @property
    def remaining_seconds(self) -> float:
        """Return the remaining time; never below 0."""
        return max(0.0, (self._ends_at - self._clock.now()).total_seconds())

    @property
    def timeout_seconds(self) -> float:
        """Return the longest wait now; never 0, which some platforms take for no time-out."""
        return max(min(self._silence_seconds, self.remaining_seconds), 0.001)

    def __index__(self) -> int:
        if not self.remaining_seconds:
            raise TimeoutError
        return math.ceil(self.timeout_seconds)


def may_repeat(error: ApiError, operation: AnyOperation) -> bool:
    """Return True if the error is temporary and the request can safely be sent again."""
    # A request that was not sent had no effect, so it can be repeated for any operation.
    if isinstance(error, ServiceUnavailable):
        return operation.repeatable or not error.sent
    # The specification shows statuses for POST /login only, so the type or the status is enough.
    broken = isinstance(error, InternalError) or getattr(error, "status", 0) >= 500
    # What exceeded a limit of requests was not done.
    return _is_limited(error) or (operation.repeatable and broken)


def may_be_done(error: ApiError) -> bool:
    """Return False if the request of an attempt that failed, and may be repeated, surely had no effect."""
    return error.sent if isinstance(error, ServiceUnavailable) else not _is_limited(error)


def _is_limited(error: ApiError) -> bool:
    return isinstance(error, RateLimitExceeded) or getattr(error, "status", 0) == 429


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """Return the wait of a Retry-After header in seconds; it holds seconds, or an HTTP date.

    None if it is absent or cannot be read. At most some 30 years, so that the sum with a time is valid.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _FOR_EVER_SECONDS)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # "-0000" is UTC of no known place.
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds())
