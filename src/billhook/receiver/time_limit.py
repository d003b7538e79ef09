"""TimeLimit: end what takes too long on an event loop, a few at a time."""

from __future__ import annotations

import asyncio
from types import TracebackType
from weakref import WeakKeyDictionary

__all__ = ["TimeLimit"]

_SWEEP_SECONDS = 0.01
_SWEEP_AT_MOST = 25
"""What is ended in one sweep. With a timer each, thousands that began together would end together as well,
and every other request would wait for that."""


class TimeLimit:
    """As `asyncio.timeout` of always the same length: `with limit.of(task)` raises TimeoutError."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = WeakKeyDictionary()

    def of(self, task: asyncio.Task[object]) -> _Limited:
        """Return the context in which this task is limited; it is the one that enters it."""
        loop = task.get_loop()
        waiting = self._of_loops.get(loop)
        if waiting is None:
            waiting = self._of_loops[loop] = _Waiting(self.seconds)
        return _Limited(waiting, task, loop)


class _Waiting:
    """The contexts of one loop, those that were entered first in front."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[_Limited, float] = {}  # in this order, because all have the same length
        self._timer: asyncio.TimerHandle | None = None

    def add(self, limited: _Limited, loop: asyncio.AbstractEventLoop) -> None:
        self._due[limited] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._sweep, loop)

    def discard(self, limited: _Limited) -> None:
        self._due.pop(limited, None)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        overdue: list[_Limited] = []
        next_due = None
        for limited, due in self._due.items():
            if due > now or len(overdue) == _SWEEP_AT_MOST:
                next_due = due
                break
            overdue.append(limited)
        for limited in overdue:
            del self._due[limited]
            limited.end()
        # One timer for all; it is gone when nothing waits, and holds nothing then.
        self._timer = (
            None if next_due is None else loop.call_at(max(next_due, now + _SWEEP_SECONDS), self._sweep, loop)
        )


class _Limited:
    """What one task does within the limit."""

    __slots__ = ("_loop", "_over", "_task", "_waiting")

    def __init__(
        self, waiting: _Waiting, task: asyncio.Task[object], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._waiting = waiting
        self._task = task
        self._loop = loop
        self._over = False

    def __enter__(self) -> _Limited:
        self._waiting.add(self, self._loop)
        return self

    def check(self) -> None:
        """Raise TimeoutError if the time is over.

        Call it after each wait: until Python 3.12 `asyncio.wait_for` loses a cancellation that comes with its
        result.
        """
        if self._over:
            raise TimeoutError

    def end(self) -> None:
        self._over = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.discard(self)
        # Another may have cancelled the task as well, and that must not be lost.
        if self._over and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error
