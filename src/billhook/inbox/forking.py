"""What is done around a fork, and the lock under which a child sets itself up, once, whoever is first."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

__all__ = ["SETTING_UP", "at_fork"]

SETTING_UP = threading.Lock()
"""Held by whoever forks while it forks, so that no child is born with it locked by a thread it has not."""

Step = Callable[[], None]
_steps: list[tuple[Step, Step, Step]] = []


def at_fork(before: Step, after_in_parent: Step, after_in_child: Step) -> None:
    """Have these called around every fork, under the lock: one fork at a time."""
    _steps.append((before, after_in_parent, after_in_child))


def _before() -> None:
    SETTING_UP.acquire()
    for before, _, _ in _steps:
        before()


def _after_in_parent() -> None:
    for _, after, _ in _steps:
        after()
    SETTING_UP.release()


def _after_in_child() -> None:
    for _, _, after in _steps:
        after()
    SETTING_UP.release()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
