"""Detect that a process is out of file descriptors, or has lost its own, and must be replaced.

The cause is a handler that opens files and never closes them, or closes descriptors that are not its own.
"""

from __future__ import annotations

import errno
import os

_FAILURE_LIMIT = 5
"""Attempts or polls that failed for want of descriptors, one after another, before the process gives up."""
_CHAIN_LIMIT = 20
_FEW = 16
"""More descriptors than an inbox needs. An inbox that could not be opened has closed its own again when
they are counted."""


class DescriptorMonitor:
    """Count the failures in a row that a lack of descriptors caused."""

    def __init__(self) -> None:
        self.exhausted = False
        """Whether descriptors are missing for good, and not for a moment."""
        self.failing = 0
        """How many attempts and polls in a row ended for want of descriptors."""

    def record(self, error: BaseException | None) -> None:
        """Record how an attempt or a poll ended; None is success. Other errors prove nothing either way."""
        if error is None:
            self.failing = 0
        elif _is_descriptor_error(error) or _few_left():
            self.failing += 1
        self.exhausted = self.failing >= _FAILURE_LIMIT


def _is_descriptor_error(error: BaseException) -> bool:
    """Return whether the error, or one that it came from, is EMFILE or EBADF."""
    # Drivers and handlers wrap errors. Bounded: a user's code can make a chain that is a circle.
    cause: BaseException | None = error
    for _ in range(_CHAIN_LIMIT):
        if cause is None:
            return False
        if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.EBADF):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _few_left() -> bool:
    """Return whether few descriptors are left: SQLite only reports that it is unable to open a file."""
    opened: list[int] = []
    try:
        for _ in range(_FEW):
            opened.append(os.open(os.devnull, os.O_RDONLY))  # noqa: PERF401 - to be closed if one fails
    except OSError as error:
        return error.errno == errno.EMFILE
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return False
