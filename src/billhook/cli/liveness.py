"""Liveness: a worker tells systemd, its parent, or a file that a container's probe reads, that it is alive.

Heartbeats of a child to its parent are bytes in a pipe: a process that is stopped as a whole cannot report
that itself, so the parent notices that bytes are missing. Source: sd_notify(3), the protocol of
NOTIFY_SOCKET and WATCHDOG_USEC.
"""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import socket
import stat
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

from billhook.errors import ConfigError
from billhook.logs import fields

__all__ = ["LOCK_HOLDER_SECONDS", "HeartbeatMonitor", "HeartbeatSender", "Liveness", "interval_seconds"]

logger = logging.getLogger("billhook.worker")
_INTERVAL_SECONDS = 1.0
_LONGEST_INTERVAL_SECONDS = 1.0
_MIN_SILENCE_SECONDS = 15.0
LOCK_HOLDER_SECONDS = 5.0
"""How long a process that holds the write lock of an inbox in SQLite may be silent: none can write then."""
_START_SECONDS = 600.0
"""Longest time until the first heartbeat: a process imports the user's code first, which may load models."""
_STALL_SECONDS = 2.0
"""Longest time between two checks; after a longer one the parent or the whole machine did not run."""
_READ_BYTES = 65_536  # as much as a pipe holds


class Liveness:
    """What tells others that this process is alive. It neither blocks nor raises once it is made."""

    def __init__(self, environ: MutableMapping[str, str], health_file: Path | None = None) -> None:
        """Read systemd's variables, and remove them: child processes must not answer for this one.

        `health_file` is created, and from then on touched. Raises ConfigError if it cannot be.
        """
        address = environ.pop("NOTIFY_SOCKET", None)
        microseconds = environ.pop("WATCHDOG_USEC", "")
        watched_pid = environ.pop("WATCHDOG_PID", str(os.getpid()))
        self.interval_seconds = _INTERVAL_SECONDS
        if address and microseconds.isdigit() and watched_pid == str(os.getpid()):
            # A third of what it allows, as a busy machine may delay one.
            self.interval_seconds = min(_INTERVAL_SECONDS, int(microseconds) / 1e6 / 3)
            faulthandler.enable()  # systemd ends a hanging process with SIGABRT: the log shows where it hung
        # A leading @ stands for the NUL of Linux's abstract addresses.
        self._address = "\0" + address[1:] if address and address[0] == "@" else address
        self._file = health_file
        self._file_failed = False
        self._told_ready = False
        self._next_at = 0.0
        if health_file is not None:
            try:
                health_file.touch()
            except OSError as error:
                raise ConfigError(
                    f"--health-file {health_file} cannot be written: {error.strerror}"
                ) from None

    @property
    def is_used(self) -> bool:
        """Whether there is anything to notify: systemd or a file."""
        return bool(self._address) or self._file is not None

    def beat(self) -> None:
        """Tell that this process is alive, unless that was told just now; at first, that it has started."""
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + self.interval_seconds * 0.9
        self._notify("WATCHDOG=1" if self._told_ready else "READY=1\nWATCHDOG=1")
        self._told_ready = True
        self._touch()

    def stopping(self) -> None:
        """Tell that an orderly stop has begun. Callable from a signal handler."""
        self._notify("STOPPING=1")

    def close(self) -> None:
        """Remove the file: this process is about to end."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.unlink()

    def _notify(self, message: str) -> None:
        if not self._address:
            return
        # A socket for each message, at most one a second: a handler cannot close one that is not open.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(message.encode(), self._address)

    def _touch(self) -> None:
        file = self._file
        if file is None:
            return
        try:
            file.touch()
        except OSError as error:
            if not self._file_failed:
                text = "the health file %s cannot be touched, a probe will find it too old: %s"
                logger.error(text, file, error.strerror, extra=fields(cause=error))  # noqa: TRY400
            self._file_failed = True
        else:
            self._file_failed = False


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
        self._last_check_at = -math.inf

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

    def is_hung(self, now: float, holds_lock: Callable[[], bool] = lambda: False) -> bool:
        """Return whether the process has been silent for too long. Call it often.

        One that has not started yet has ten minutes for its first heartbeat. `holds_lock` is called when it
        has been silent for LOCK_HOLDER_SECONDS: then that is too long if it keeps the others from writing.
        """
        heard = self._read()
        self._has_started = heard or self._has_started
        # After a pause of this process nothing is known about the child: its time starts again.
        if heard or now - self._last_check_at > _STALL_SECONDS:
            self._last_heartbeat_at = now
        self._last_check_at = now
        limit = self.limit_seconds if self._has_started else max(self.limit_seconds, _START_SECONDS)
        silent_seconds = now - self._last_heartbeat_at
        if silent_seconds > limit:
            return True
        return self._has_started and silent_seconds > LOCK_HOLDER_SECONDS and holds_lock()

    def close(self) -> None:
        """Close the pipe and forget the process."""
        reader, self._reader = self._reader, None
        self._has_started = False
        self._last_check_at = -math.inf  # the time of the next process starts with its first check
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
