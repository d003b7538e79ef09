"""Limit the time that a task of an event loop waits, with one timer for all of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from weakref import WeakKeyDictionary

_SWEEP_SECONDS = 0.01
_SWEEP_AT_MOST = 25
"""The most tasks that one sweep ends. With a timer for each task, thousands that began together would also
end together, and every other request would wait for them."""


class TimeLimit:
    """Like `asyncio.timeout`, with one length for all tasks: `with limit.of(task)` raises TimeoutError."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = WeakKeyDictionary()

    def of(self, task: asyncio.Task[object]) -> _Limited:
        """Return the context that limits this task, to be entered by the task itself."""
        loop = task.get_loop()
        waiting = self._of_loops.get(loop)
        if waiting is None:
            waiting = self._of_loops[loop] = _Waiting(self.seconds)
        return _Limited(waiting, task, loop)


class _Waiting:
    """The contexts that were entered on one event loop, oldest first, and one timer for all of them."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.due: dict[_Limited, float] = {}  # in the order in which they end, as all have the same length
        self.timer: asyncio.TimerHandle | None = None

    def sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        overdue: list[_Limited] = []
        next_due = None
        for limited, due in self.due.items():
            if due > now or len(overdue) == _SWEEP_AT_MOST:
                next_due = due
                break
            overdue.append(limited)
        for limited in overdue:
            del self.due[limited]
            limited.over = True
            limited.task.cancel()
        # There is no timer while nothing waits, so that it keeps no object alive.
        self.timer = (
            None if next_due is None else loop.call_at(max(next_due, now + _SWEEP_SECONDS), self.sweep, loop)
        )


@dataclass(slots=True, eq=False)
class _Limited:
    """The context in which one task is limited.

    Check `over` after each wait: until Python 3.12 `asyncio.wait_for` loses a cancellation that comes
    together with its result.
    """

    waiting: _Waiting
    task: asyncio.Task[object]
    loop: asyncio.AbstractEventLoop
    over: bool = False

    def __enter__(self) -> _Limited:
        waiting = self.waiting
        waiting.due[self] = self.loop.time() + waiting.seconds
        if waiting.timer is None:
            waiting.timer = self.loop.call_later(waiting.seconds, waiting.sweep, self.loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.waiting.due.pop(self, None)
        # Other code may have cancelled the task as well; that cancellation must not be lost.
        if self.over and self.task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error
