"""Calling handlers side by side, or one of them alone: among the threads of a process that have no loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Gate"]


class Gate:
    """Nobody waits here for longer than a lease for one who does not come out."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._changed = threading.Condition()
        self._inside = 0
        self._shut_until = 0.0

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Inside with others, once nobody is alone."""
        with self._changed:
            self._wait_until_open()
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside without others, once those that are inside have come out; nobody follows meanwhile."""
        with self._changed:
            self._wait_until_open()
            self._shut_until = time.monotonic() + self._lease_seconds
            self._changed.wait_for(lambda: self._inside == 0, self._lease_seconds)
            self._shut_until = ours = time.monotonic() + self._lease_seconds
        try:
            yield
        finally:
            with self._changed:
                if self._shut_until == ours:  # else we hung, and the gate is another's by now
                    self._shut_until = 0.0
                self._changed.notify_all()

    def _wait_until_open(self) -> None:
        while (left := self._shut_until - time.monotonic()) > 0:
            self._changed.wait(left)
