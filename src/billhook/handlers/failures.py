"""Decide when a failed attempt is retried, by a schedule of waits, and group the failures of one bug.

Failures are of one bug if the user's own code in the traceback is the same, and the text without ids. A group
is the exception's type and the innermost frames of the user's code: where a library raised, with the frame
that called it. A frame is its function and the text of its line, not the line's number, which moves with
every edit above it. Of an app that is installed as a package, the package of the outermost frame is its own
code. Without any frame the text counts. A group of exceptions counts as its members.
"""

from __future__ import annotations

import linecache
import random
import re
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, TracebackType
from typing import NamedTuple

from billhook.clock import format_duration
from billhook.errors import ConfigError, Discard, Retry
from billhook.printable import without_ids

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


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The decision after a failed attempt: a retry after some seconds, or the end as discarded or dead."""

    retry_after_seconds: float | None = None
    discarded: bool = False

    @property
    def dead(self) -> bool:
        return self.retry_after_seconds is None and not self.discarded


def decide(
    error: BaseException, attempt: int, schedule: RetrySchedule, *, jitter: float = 0.0
) -> RetryDecision:
    """Decide what follows attempt number `attempt` (counted from 1), which raised `error`.

    A wait of the schedule is longer by a random part of up to `jitter`, so that runs that failed together,
    because one server was down, are not all retried together. It is never shorter.
    """
    # Check this before the number of attempts: a Discard at the last attempt is a decision, not a failure.
    if isinstance(error, Discard):
        return RetryDecision(discarded=True)
    if attempt >= schedule.attempts:
        return RetryDecision()
    # A subclass of Retry may set after_seconds to any value, or not at all.
    after_seconds = getattr(error, "after_seconds", None) if isinstance(error, Retry) else None
    if isinstance(after_seconds, int | float) and 0 <= after_seconds <= LONGEST_SECONDS:
        return RetryDecision(retry_after_seconds=after_seconds)
    later = 1 + jitter * random.random()  # noqa: S311 - no secret
    return RetryDecision(retry_after_seconds=schedule.delays_seconds[attempt - 1] * later)


FRAMES = 3
"""Of the user's own frames the innermost count: outer ones differ by who called a function."""
_BILLHOOK = str(Path(__file__).parent.parent)
_LIBRARIES = (
    _BILLHOOK,
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)
_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\][^/\\]+")
"""Up to the package, or the module, of an installed library."""


class FailureGroup(NamedTuple):
    """What failures of one bug have in common, and `place`, where the innermost frame is."""

    key: str
    place: str | None = None


def group_of(exception: BaseException, text: str) -> FailureGroup:
    """Return what groups an exception with others of the same bug; `text` is its own, made safely."""
    kind = f"{type(exception).__module__}.{type(exception).__qualname__}"
    if isinstance(exception, BaseExceptionGroup):
        # Its own frames are where the tasks were waited for: the bug is in one of the members.
        members = [group_of(one, type(one).__name__) for one in _first_members(exception)]
        return FailureGroup("\n".join([kind, *sorted({one.key for one in members})]), members[0].place)
    frames = _own_frames(exception.__traceback__)
    if not frames:
        return FailureGroup(f"{kind}\n{without_ids(text)}")
    lines = [f"{code.co_qualname}: {_source_line(code, number)}" for code, number in frames]
    code, number = frames[-1]
    return FailureGroup("\n".join([kind, *lines]), f"{_short(code.co_filename)}:{number} in {code.co_name}")


def _first_members(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the first exceptions of a group that are no groups themselves, however deep they are."""
    members: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting and len(members) < FRAMES:
        one = waiting.pop(0)
        if isinstance(one, BaseExceptionGroup):
            waiting[:0] = one.exceptions
        else:
            members.append(one)
    return members


def _own_frames(trace: TracebackType | None) -> list[tuple[CodeType, int]]:
    """Return the code and line number of the user's innermost frames, the outermost of them first."""
    frames = [(frame.f_code, number) for frame, number in traceback.walk_tb(trace)]
    own = [(code, number) for code, number in frames if _is_own(code.co_filename)]
    if not own:
        for found in (_INSTALLED.match(code.co_filename) for code, _ in frames):
            if found is not None and not found.string.startswith(_BILLHOOK):
                package = found.group()
                own = [(code, number) for code, number in frames if code.co_filename.startswith(package)]
                break
    return own[-FRAMES:]


def _is_own(filename: str) -> bool:
    return not (_INSTALLED.match(filename) or filename.startswith(("<", *_LIBRARIES)))


def _source_line(code: CodeType, number: int) -> str:
    return linecache.getline(code.co_filename, number).strip()


def _short(filename: str) -> str:
    """Return the path below the working directory, or its last two parts."""
    path = Path(filename)
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(Path(*path.parts[-2:]))
