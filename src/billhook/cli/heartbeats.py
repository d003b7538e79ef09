"""Heartbeats of a child to its parent: bytes in a pipe.

A process that is stopped as a whole cannot report that itself, so the parent notices that bytes are missing.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from subprocess import Popen

__all__ = ["HeartbeatMonitor", "HeartbeatSender", "interval_seconds"]

logger = logging.getLogger("billhook.worker")

_LONGEST_INTERVAL_SECONDS = 1.0
_MIN_SILENCE_SECONDS = 15.0
_STALL_SECONDS = 2.0
"""Longest time between two checks; after a longer one the parent or the whole machine did not run."""
_READ_BYTES = 65_536  # as much as a pipe holds


def interval_seconds(lease_seconds: float) -> float:
    """Return the time between two heartbeats of a child."""
    return min(_LONGEST_INTERVAL_SECONDS, lease_seconds / 3)


class HeartbeatMonitor:
    """The parent's end: one pipe for each process of a role, one after another.

    Only bytes count, not the end of the pipe: a process that a handler forked may keep it open.
    """

    def __init__(self, lease_seconds: float) -> None:
        self.limit_seconds = max(_MIN_SILENCE_SECONDS, 3 * lease_seconds)
        self._reader: int | None = None
        self._has_started = False
        self._last_heartbeat_at = 0.0
        self._last_check_at = 0.0

    @property
    def has_started(self) -> bool:
        """Return whether the process has sent a heartbeat, even if it has exited since."""
        self._has_started = self._read() or self._has_started
        return self._has_started

    def start(self, start: Callable[[int], Popen[bytes]]) -> Popen[bytes]:
        """Start a process with a new pipe: `start` gets the descriptor that the process inherits."""
        self.close()
        self._reader, writer = os.pipe()
        try:
            # Non-blocking in the child as well: a full pipe must not block a worker.
            for descriptor in (self._reader, writer):
                os.set_blocking(descriptor, False)
            return start(writer)
        finally:
            # The child has inherited its own; each restart would leave one more open here.
            os.close(writer)

    def is_hung(self, now: float) -> bool:
        """Return whether the process has been silent for too long. Call it often.

        A process that has not started yet is never silent for too long.
        """
        heard = self._read()
        self._has_started = heard or self._has_started
        # After a pause of this process nothing is known about the child: its time starts again.
        if heard or now - self._last_check_at > _STALL_SECONDS:
            self._last_heartbeat_at = now
        self._last_check_at = now
        return self._has_started and now - self._last_heartbeat_at > self.limit_seconds

    def close(self) -> None:
        """Close the pipe and forget the process."""
        reader, self._reader = self._reader, None
        self._has_started = False
        if reader is not None:
            os.close(reader)

    def _read(self) -> bool:
        if self._reader is None:
            return False
        try:
            return bool(os.read(self._reader, _READ_BYTES))
        except BlockingIOError:
            return False


class HeartbeatSender:
    """The child's end. It writes only to the pipe that it was given."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pipe = _identity(descriptor)
        if self._pipe is not None:
            os.set_inheritable(descriptor, False)  # a program that a handler executes must not have it

    def beat(self) -> None:
        """Send a heartbeat. Never blocks or raises; without a parent it does nothing."""
        if self._pipe is None:
            return
        # A handler may have closed the descriptor: its number then belongs to the next file that is opened.
        if _identity(self._descriptor) != self._pipe:
            self._pipe = None
            logger.error("a handler closed the heartbeat pipe: the parent will restart this process")
            return
        try:
            os.write(self._descriptor, b".")
        except BlockingIOError:
            pass  # full: the parent has not read for hours, and the bytes in the pipe are enough
        except OSError:
            self._pipe = None  # the parent is gone; the tie to it ends this process


def _identity(descriptor: int) -> tuple[int, int] | None:
    """Return the identity of a pipe; None for a descriptor that is not a pipe."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISFIFO(status.st_mode) else None
