"""Graceful shutdown: the first SIGTERM drains, the second exits at once, the grace period is a hard limit."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from types import FrameType

from billhook.cli.liveness import interval_seconds

__all__ = ["GracefulShutdown", "start_heartbeat", "start_watchdog"]

_RELEASE_SECONDS = 3.0
"""After the grace period, to release leases: the storage may be slow or unavailable."""
_EXIT_SECONDS = 1.0
_MIN_SILENCE_SECONDS = 5.0


class GracefulShutdown:
    """Handles SIGTERM and SIGINT from its creation on. Create it in the main thread."""

    def __init__(self, stop: Callable[[], None], grace_seconds: float, *, exit_on_second: bool) -> None:
        """Call `stop` on the first signal. `exit_on_second`: exit at once on the second.

        A supervised process ignores the second signal: systemd and terminals signal parent and child alike,
        and the parent kills when it wants an immediate end.
        """
        self._stop = stop
        self._grace_seconds = grace_seconds
        self._exit_on_second = exit_on_second
        self._requested = False
        self._done = False
        # The only queue that is safe in a signal handler, which can interrupt any code.
        self._deadlines: SimpleQueue[float] = SimpleQueue()
        threading.Thread(target=self._enforce_deadline, name="billhook-shutdown", daemon=True).start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    @property
    def exit_code(self) -> int:
        """0 if the shutdown was requested and completed."""
        return 0 if self._requested and self._done else 1

    def request(self) -> None:
        """Shut down as on a first signal, without its time limit. Call it from any thread."""
        self._requested = True
        self._stop()

    def complete(self) -> None:
        """Note that the work is done; exit soon even if threads of the user's code still run."""
        self._done = True
        # Python waits for threads that are no daemons before it exits; a handler's may never end.
        threading.Thread(target=self._exit_after, args=(_EXIT_SECONDS,), daemon=True).start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # os._exit: sys.exit would run exit handlers and wait for threads, and this is for those that hang.
        if self._requested and self._exit_on_second:
            os._exit(1)
        if not self._requested:
            self._requested = True
            self._deadlines.put(self._grace_seconds + _RELEASE_SECONDS)
            self._stop()

    def _enforce_deadline(self) -> None:
        self._exit_after(self._deadlines.get())

    def _exit_after(self, seconds: float) -> None:
        time.sleep(seconds)
        # os._exit writes out no buffers: without this, a handler's last output would be lost.
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(self.exit_code)


def start_watchdog(lease_seconds: float, beat: Callable[[], None]) -> None:
    """Exit with a traceback of every thread if no Python code has run for a lease's length.

    A handler can hang while it holds the interpreter lock, for example in a regular expression: then no
    thread can time it out or renew a lease. faulthandler's timer is written in C and needs no lock. `beat`
    tells the parent that this process runs, because a stopped process cannot watch itself.
    """
    seconds = max(_MIN_SILENCE_SECONDS, lease_seconds)
    pause = min(seconds / 8, interval_seconds(lease_seconds))

    def keep_alive() -> None:
        # Each call replaces the timer before: it fires only if this thread does not come back in time.
        faulthandler.dump_traceback_later(seconds, exit=True)
        beat()

    start_heartbeat(keep_alive, pause)


def start_heartbeat(beat: Callable[[], None], pause_seconds: float) -> None:
    """Call `beat` from a thread of its own, again and again, for as long as Python code runs here."""

    def keep_alive() -> None:
        # If the parent is gone, `beat` must get an error, also if the user's code has changed SIGPIPE.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
        while True:
            beat()
            time.sleep(pause_seconds)

    threading.Thread(target=keep_alive, name="billhook-watch", daemon=True).start()
