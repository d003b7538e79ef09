"""A clock that is wrong for some processes, by libfaketime."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from support.postgres import unavailable

CACHED_SECONDS = 1
"""How long a process keeps what the clock's file said. Threads that wait for the interpreter ask the clock
thousands of times: with the file read at each, a worker would stand still for longer than its leases."""


class WrongClock:
    """A clock for processes that are started with `wrap`: it is as far ahead as `set` said last."""

    def __init__(self, folder: Path) -> None:
        command = shutil.which("faketime") or unavailable("no faketime: apt-get install faketime")
        self._file = folder / "clock"
        self.set(0)
        # Nobody sets the monotonic clock. The command is given an offset, and a file may change it.
        self.wrap = [command, "--exclude-monotonic", "-f", "+0s", "env", "-u", "FAKETIME"]
        self.wrap += [f"FAKETIME_TIMESTAMP_FILE={self._file}", f"FAKETIME_CACHE_DURATION={CACHED_SECONDS}"]

    def set(self, seconds: int) -> None:
        """Set the clock of the processes that run already, too."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{seconds:+d}s\n")
        written.replace(self._file)
        time.sleep(CACHED_SECONDS + 0.2)
