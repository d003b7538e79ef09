"""Limits of time that grow with the load of the machine, so that no test measures the machine.

A limit is what the promise says where nothing else runs. Beside other busy processes each step waits for
a core, and how long says nothing about the code under test.
"""

from __future__ import annotations

import os
from pathlib import Path

#: No limit grows beyond this, whatever the load: what hangs is found all the same.
MAX_LOAD_FACTOR = 12.0


class Seconds:
    """Monotonic time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 5_000.0

    def __call__(self) -> float:
        return self.now


def scaled(seconds: float) -> float:
    """Return a limit in seconds, made larger by the load of the machine at this moment."""
    return seconds * load_factor()


def load_factor() -> float:
    """Return how many times longer than alone a step may take: 1 on a quiet machine, where limits are strict.

    With as many processes as cores it is 1 still, with twice as many 3: those that wait do not wait in turn.
    """
    cores = os.cpu_count() or 1
    # The average lags behind by a minute: what runs now is asked for too.
    waiting = max(os.getloadavg()[0], _running())
    return min(MAX_LOAD_FACTOR, max(1.0, 2 * waiting / cores - 1))


def _running() -> float:
    """Return how many processes run or wait for a core now; 0 where the system does not tell."""
    try:
        return float(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 0.0
