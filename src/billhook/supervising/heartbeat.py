"""The heartbeat: once a second a process tells that it is alive.

It tells systemd by its socket (sd_notify(3)), the probe of a container by the time of a file, and its parent
by a time in memory that both share. A process that is stopped as a whole cannot report that itself, so its
parent notices that the time is old.
"""

from __future__ import annotations

import faulthandler
import logging
import math
import mmap
import os
import socket
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path

from billhook.basics.concurrency import start_thread
from billhook.errors import ConfigError
from billhook.logs import LimitedLog
from billhook.supervising.memory import MemoryMonitor

logger = logging.getLogger("billhook.worker")

TIME_BYTES = 8
_HEARTBEAT_SECONDS = 1.0
LOCK_HOLDER_SECONDS = 5.0
"""How long a process that holds the write lock of an inbox in SQLite may be silent: none can write then."""


class HeartbeatSender:
    """Tells systemd, a probe and a parent that this process is alive, and neither blocks nor raises."""

    def __init__(
        self, environ: MutableMapping[str, str], file: Path | None = None, descriptor: int | None = None
    ) -> None:
        """Read systemd's variables, and remove them: child processes must not answer for this one.

        `file` is created at the first beat, and then touched; one of an earlier process is removed. Raises
        ConfigError if it cannot be made. `descriptor` leads to the memory that a parent shares with this
        process.
        """
        address = environ.pop("NOTIFY_SOCKET", None)
        microseconds = environ.pop("WATCHDOG_USEC", "")
        watched_pid = environ.pop("WATCHDOG_PID", str(os.getpid()))
        self.interval_seconds = _HEARTBEAT_SECONDS
        if address and microseconds.isdigit() and watched_pid == str(os.getpid()):
            # A third of what it allows, as a busy machine may delay one.
            self.interval_seconds = min(_HEARTBEAT_SECONDS, int(microseconds) / 1e6 / 3)
            faulthandler.enable()  # systemd ends a hanging process with SIGABRT: the log shows where it hung
        # A leading @ stands for the NUL of Linux's abstract addresses.
        self._address = "\0" + address[1:] if address and address[0] == "@" else address
        self._file = file
        self.is_external = bool(address) or file is not None
        """Whether systemd or a probe, which have this process restarted, are told."""
        self._log = LimitedLog(logger, interval_seconds=60.0)
        self._next_at = 0.0
        self._memory = None if descriptor is None else map_time(descriptor)
        try:
            if file is not None:
                _touch(file)
                file.unlink()
        except OSError as error:
            raise ConfigError(f"--health-file {file} cannot be written: {error.strerror}") from None

    def beat(self) -> None:
        """Tell that this process is alive, unless that was told just now; at first, that it has started."""
        now = time.monotonic()
        if now < self._next_at:
            return
        self._notify("WATCHDOG=1" if self._next_at else "READY=1\nWATCHDOG=1")
        self._next_at = now + self.interval_seconds * 0.9
        if self._memory is not None:
            self._memory[0] = now
        try:
            if self._file is not None:
                _touch(self._file)
        except OSError as error:
            text = f"the health file {self._file} cannot be touched, a probe will find it too old"
            self._log.log("file", logging.ERROR, f"{text}: {error.strerror}", cause=error)

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


def _touch(file: Path) -> None:
    """Set the time of a file that is made if need be. Raises OSError: a link in its place was planted."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(file, flags, 0o644)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def start_watchdog(
    heartbeat: HeartbeatSender,
    hang_seconds: float,
    is_stalled: Callable[[], bool],
    stop: Callable[[], object],
) -> None:
    """Start a thread that sends heartbeats, except while `is_stalled`; exit when no Python code can run.

    It calls `stop`, for a successor to take over, when there is no memory left again and again.

    A handler can hang while it holds the interpreter lock, for example in a regular expression: then no
    thread can time it out or renew a lease. After `hang_seconds` of that, or 5 s if that is longer, the
    process exits with a traceback of every thread. faulthandler's timer is written in C and needs no lock.
    While this process holds the write lock of an inbox in SQLite the limit is 5 s; a slow disk is no silence.
    """
    from billhook.inbox.sqlite.driver import HOLDING

    output = os.dup(2)  # not sys.stderr, which a handler may replace by what has no descriptor

    def renew() -> None:
        # Each call replaces the timer before: it fires only if no thread comes back in time.
        limit = LOCK_HOLDER_SECONDS if HOLDING.now else max(LOCK_HOLDER_SECONDS, hang_seconds)
        with suppress(Exception):  # no thread can be started now: the next call tries again
            if limit < math.inf:
                faulthandler.dump_traceback_later(limit, exit=True, file=output)
            else:
                faulthandler.cancel_dump_traceback_later()

    def watch() -> None:
        memory, stopped = MemoryMonitor(), False
        while True:
            renew()
            if not stopped and memory.is_exhausted():
                stopped = True
                logger.error("worker stopping: there is no memory left")
                stop()
            if not is_stalled():
                heartbeat.beat()
            time.sleep(heartbeat.interval_seconds)

    # While this process holds SQLite's write lock no other can write, and the receiver refuses everything.
    HOLDING.changed = renew
    start_thread(watch, "billhook-watch")


def map_time(descriptor: int) -> memoryview[float]:
    """Map the memory of a file, which stays when a handler closes every descriptor: a time, 0 at first."""
    return memoryview(mmap.mmap(descriptor, TIME_BYTES)).cast("d")
