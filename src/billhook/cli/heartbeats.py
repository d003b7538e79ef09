"""A child's heartbeats to its parent: bytes in a pipe, for a process that is stopped cannot say so itself."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from subprocess import Popen

__all__ = ["Heartbeats", "Sender", "interval_seconds"]

logger = logging.getLogger("billhook.worker")

_LONGEST_INTERVAL_SECONDS = 1.0
_LEAST_SILENCE_SECONDS = 15.0
_STALL_SECONDS = 2.0
"""Between two looks of the parent; longer, and it is the parent that did not run, or the whole machine."""
_READ_BYTES = 65_536  # as much as a pipe holds


def interval_seconds(lease_seconds: float) -> float:
    """Return the time between two heartbeats of a child."""
    return min(_LONGEST_INTERVAL_SECONDS, lease_seconds / 3)


class Heartbeats:
    """The parent's end of a pipe, one for each process that has a role, one after another.

    Only bytes count, for a child that a handler forked may keep the pipe open as long as it likes.
    """

    def __init__(self, lease_seconds: float) -> None:
        self.limit_seconds = max(_LEAST_SILENCE_SECONDS, 3 * lease_seconds)
        self._reader: int | None = None
        self._came_up = False
        self._heard_at = 0.0
        self._looked_at = 0.0

    @property
    def came_up(self) -> bool:
        """Return whether the process has sent any, be it that it has ended since."""
        self._came_up = self._heard() or self._came_up
        return self._came_up

    def start(self, start: Callable[[int], Popen[bytes]]) -> Popen[bytes]:
        """Start a process with a new pipe: `start` is given the descriptor that it inherits."""
        self.close()
        self._reader, writer = os.pipe()
        try:
            # The writer's end is the same one in the child: a full pipe holds nobody up.
            for descriptor in (self._reader, writer):
                os.set_blocking(descriptor, False)
            return start(writer)
        finally:
            os.close(writer)

    def hangs(self, now: float) -> bool:
        """Return whether nothing was heard for too long. Call it often.

        One that has not come up may take its time. While we did not look ourselves, nothing is known:
        then its time begins anew.
        """
        heard = self._heard()
        self._came_up = heard or self._came_up
        if heard or now - self._looked_at > _STALL_SECONDS:
            self._heard_at = now
        self._looked_at = now
        return self._came_up and now - self._heard_at > self.limit_seconds

    def close(self) -> None:
        """Forget the process."""
        reader, self._reader = self._reader, None
        self._came_up = False
        if reader is not None:
            os.close(reader)

    def _heard(self) -> bool:
        if self._reader is None:
            return False
        try:
            return bool(os.read(self._reader, _READ_BYTES))
        except BlockingIOError:
            return False


class Sender:
    """The child's end. It writes into nothing but the pipe that it was given."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pipe = _identity(descriptor)
        if self._pipe is not None:
            os.set_inheritable(descriptor, False)  # what a handler executes has no use for it

    def beat(self) -> None:
        """Say that this process runs. Never waits and never raises; without a parent it says nothing."""
        if self._pipe is None:
            return
        # A handler that closes what is not its own leaves the number to the next file that somebody opens.
        if _identity(self._descriptor) != self._pipe:
            self._pipe = None
            logger.error("a handler closed the pipe to the parent, which replaces this process soon")
            return
        try:
            os.write(self._descriptor, b".")
        except BlockingIOError:
            pass  # full: the parent has not looked for hours, and what it finds then will do
        except OSError:
            self._pipe = None  # the parent is gone, and how we end then is not ours to say


def _identity(descriptor: int) -> tuple[int, int] | None:
    """Return what tells this pipe from any other; None when the descriptor is none."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISFIFO(found.st_mode) else None
