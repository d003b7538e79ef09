"""The notifier on SQLite: a named pipe beside the file wakes workers in other processes.

Level-triggered: an unread byte wakes the next reader at once. Without a reader a notification is lost, which
is harmless, because every worker also polls the inbox.
"""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

from billhook.fork import reset_in_child

__all__ = ["FifoNotifier"]

NO_READER_SECONDS = 0.1
"""How long the pipe is taken to have no reader after it had none."""


class FifoNotifier:
    """`notify` from any process, `wait` in a worker; `notify` never raises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        # In a child, not closed: at the fork a thread may have been between closing one and noting it.
        self._notifying: int | None = None
        self._listening: int | None = None
        self._no_reader_until = 0.0
        # A descriptor closed during another thread's write may be reused for a socket by then.
        self._lock = threading.Lock()

    def notify(self) -> None:
        """Wake the workers: one system call."""
        with self._lock:
            if time.monotonic() < self._no_reader_until:
                return
            try:
                if self._notifying is None:
                    self._notifying = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
                os.write(self._notifying, b"!")
            except BlockingIOError:
                pass  # the pipe is full of notifications already
            except OSError:
                # No pipe, or no reader (ENXIO, EPIPE). A worker that starts later polls before it waits.
                self._close()
                self._no_reader_until = time.monotonic() + NO_READER_SECONDS

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until a notification or the end of the time; True for the former."""
        descriptor = self.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        ready = poll.poll(max(0.0, timeout_seconds) * 1000)
        if ready:
            with suppress(BlockingIOError):  # another worker read the byte first; this one is awake too
                os.read(descriptor, 65_536)
        return bool(ready)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable on a notification."""
        if self._listening is None:
            with suppress(FileExistsError):
                os.mkfifo(self._path, 0o600)
            # Read and write: the pipe then never reports end of file when the last writer closes it.
            descriptor = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
            if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(f"{self._path} is not a pipe: remove it")
            self._listening = descriptor
        return self._listening

    def close(self) -> None:
        """Close both ends in this process; the pipe stays for the others."""
        with self._lock:
            self._close()
        if self._listening is not None:
            os.close(self._listening)
            self._listening = None

    def _close(self) -> None:
        if self._notifying is not None:
            os.close(self._notifying)
            self._notifying = None
