"""Fork safety: a child process inherits no locked lock and uses no connection of its parent.

An object that holds locks, threads or connections registers a method with `reset_in_child`. It runs in each
child before anything else does, so no other code has to compare process ids.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from weakref import WeakMethod

__all__ = ["around_fork", "reset_in_child"]

Step = Callable[[], None]

_forking = threading.Lock()
"""Held during a fork and during a registration: one fork at a time, with the lists below complete."""
_steps: list[tuple[Step, Step, Step]] = []
_resets: list[WeakMethod[Step]] = []


def around_fork(before: Step, after_in_parent: Step, after_in_child: Step) -> None:
    """Call these around every fork, for the life of the process."""
    with _forking:
        _steps.append((before, after_in_parent, after_in_child))


def reset_in_child(reset: Step) -> None:
    """Call this bound method in every forked child, as long as its object lives.

    The method must replace every lock, thread and connection of its object. It must not close the parent's
    connections: closing a copy would end the session, or drop the file locks, that the parent still uses.
    """
    with _forking:
        _resets[:] = [one for one in _resets if one() is not None]
        _resets.append(WeakMethod(reset))


def _before() -> None:
    _forking.acquire()
    for before, _, _ in _steps:
        before()


def _after_in_parent() -> None:
    for _, after, _ in _steps:
        after()
    _forking.release()


def _after_in_child() -> None:
    global _forking
    _forking = threading.Lock()  # not released: a server that forks in C did not call _before
    for _, _, after in _steps:
        after()
    for reset in [one() for one in _resets]:
        if reset is not None:
            reset()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
