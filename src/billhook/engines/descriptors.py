"""A process that has no descriptors left, or lost those it had: no handler of it works, until it is replaced.

What brings it about is a handler: one that opens and never closes, or that closes what is not its own.
"""

from __future__ import annotations

import errno
import os

__all__ = ["Descriptors"]

_LIMIT = 5
"""So many attempts or turns, one after another, that ended in it."""
_CHAIN_LIMIT = 20
_FEW = 16
"""More than an inbox needs: one that could not be opened has closed what it had by the time that we look."""


class Descriptors:
    """Counts failures for want of descriptors, of which nothing that succeeded came between."""

    def __init__(self) -> None:
        self._failures = 0

    @property
    def gone(self) -> bool:
        """It is not for a moment that they are missing."""
        return self._failures >= _LIMIT

    def note(self, error: BaseException | None) -> None:
        """How an attempt, or a turn, ended: None is success. Another error says nothing of descriptors."""
        if error is None:
            self._failures = 0
        elif _of_descriptors(error) or _few_left():
            self._failures += 1


def _of_descriptors(error: BaseException) -> bool:
    """The error, or one that it came from, is EMFILE or EBADF."""
    one: BaseException | None = error
    for _ in range(_CHAIN_LIMIT):
        if one is None:
            return False
        if isinstance(one, OSError) and one.errno in (errno.EMFILE, errno.EBADF):
            return True
        one = one.__cause__ or one.__context__
    return False


def _few_left() -> bool:
    """The error may not say so: SQLite's is that it is unable to open a file."""
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
