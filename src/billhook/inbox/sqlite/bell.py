"""The bell that tells a worker in another process that there is work: a named pipe beside the file.

Level-triggered and forgetful on purpose: a byte nobody read yet wakes the next who looks, a ring that
nobody hears is lost. The rows are the truth; a slow look at them stands behind every bell.
"""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["Bell"]


DEAF_SECONDS = 0.1
"""How long nobody is thought to listen after nobody did."""


class Bell:
    """`ring` from any process, `wait` in a worker. Neither ever raises for want of a pipe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ringing: int | None = None
        self._listening: int | None = None
        self._deaf_until = 0.0
        # A descriptor closed under another thread's write may by then be somebody's socket.
        self._lock = threading.Lock()

    def ring(self) -> None:
        """Wake whoever waits: one system call."""
        with self._lock:
            if time.monotonic() < self._deaf_until:
                return
            try:
                if self._ringing is None:
                    self._ringing = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
                os.write(self._ringing, b"!")
            except BlockingIOError:
                pass  # full of rings already
            except OSError:
                # No pipe, or no reader any more (ENXIO, EPIPE). One that comes looks before it listens.
                self._hang_up()
                self._deaf_until = time.monotonic() + DEAF_SECONDS

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until the bell rings or the time is over; True if it rang."""
        descriptor = self.listen()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        ready = poll.poll(max(0.0, timeout_seconds) * 1000)
        if ready:
            with suppress(BlockingIOError):  # another worker took the byte; we are awake all the same
                os.read(descriptor, 65_536)
        return bool(ready)

    def listen(self) -> int:
        """The descriptor that becomes readable when the bell rings."""
        if self._listening is None:
            with suppress(FileExistsError):
                os.mkfifo(self._path, 0o600)
            # Read and write: the pipe then never reports end of file when the last ringer leaves.
            descriptor = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
            if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(f"{self._path} is not a pipe: remove it")
            self._listening = descriptor
        return self._listening

    def close(self) -> None:
        """Close both ends in this process; the pipe stays for the others."""
        with self._lock:
            self._hang_up()
        if self._listening is not None:
            os.close(self._listening)
            self._listening = None

    def _hang_up(self) -> None:
        if self._ringing is not None:
            os.close(self._ringing)
            self._ringing = None
