"""Tell whether this process may still use as much memory as a thread needs."""

from __future__ import annotations

import mmap

_STACK_BYTES = 8 * 1024 * 1024
"""What a thread needs for its stack at most. Without it no further thread starts, and no large body fits."""
_FAILURE_LIMIT = 5


class MemoryMonitor:
    """Ask once in a while whether this process may still use as much memory as a thread needs."""

    def __init__(self) -> None:
        self._had_memory = False
        self._failures = 0

    def is_exhausted(self) -> bool:
        """Ask, and return whether memory was missing this time and the four times before.

        Never of a process that has not had as much since its start: its successor would have no more.
        """
        try:
            mmap.mmap(-1, _STACK_BYTES).close()
            self._had_memory, self._failures = True, 0
        except (OSError, MemoryError):
            self._failures += self._had_memory
        return self._failures >= _FAILURE_LIMIT
