"""How a worker ends: in order when it is asked, at once when asked again, and not later than it said."""

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

from billhook.cli.heartbeats import interval_seconds

__all__ = ["Ending", "watch"]

_LATE_SECONDS = 3.0
"""Beyond the grace, for giving back what was claimed: storage may be slow, or gone."""
_SOON_SECONDS = 1.0
_LEAST_SILENCE_SECONDS = 5.0


class Ending:
    """What SIGTERM and SIGINT do from now on. Make it in the main thread."""

    def __init__(self, stop: Callable[[], None], grace_seconds: float, *, at_once: bool) -> None:
        """`stop` begins the end. `at_once`: a second signal leaves no time for it.

        A parent kills when it is impatient. Of it a second signal means nothing: systemd and a terminal
        signal parent and child alike.
        """
        self._stop = stop
        self._grace_seconds = grace_seconds
        self._at_once = at_once
        self._asked = False
        self._done = False
        # The only queue that may be put to in a signal handler, which can interrupt anything.
        self._waits: SimpleQueue[float] = SimpleQueue()
        threading.Thread(target=self._see_to_it, name="billhook-ending", daemon=True).start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    @property
    def code(self) -> int:
        """The exit code: 0 for an end that was asked for and came about in order."""
        return 0 if self._asked and self._done else 1

    def drained(self) -> None:
        """Nothing is left to do: end in order, as if that had been asked for. From any thread."""
        self._asked = True
        self._stop()

    def soon(self) -> None:
        """All is done: threads that the user's code has left behind hold the process up no longer."""
        self._done = True
        threading.Thread(target=self._leave_after, args=(_SOON_SECONDS,), daemon=True).start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._asked and self._at_once:
            os._exit(1)
        if not self._asked:
            self._asked = True
            self._waits.put(self._grace_seconds + _LATE_SECONDS)
            self._stop()

    def _see_to_it(self) -> None:
        self._leave_after(self._waits.get())

    def _leave_after(self, seconds: float) -> None:
        time.sleep(seconds)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(self.code)


def watch(lease_seconds: float, beat: Callable[[], None]) -> None:
    """End this process, and print where each thread is, once nothing of Python has run for a lease.

    A handler may hang without ever letting go of the interpreter, in a regular expression for instance:
    no thread of ours could give it up then, or renew a lease. What watches here is not written in Python.
    A process that is stopped as a whole watches nothing: `beat` tells the parent that this one runs.
    """
    seconds = max(_LEAST_SILENCE_SECONDS, lease_seconds)
    pause = min(seconds / 8, interval_seconds(lease_seconds))

    def show_signs_of_life() -> None:
        # A parent that is gone is an error of `beat`, whatever the user's code has made of SIGPIPE.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
        while True:
            faulthandler.dump_traceback_later(seconds, exit=True)
            beat()
            time.sleep(pause)

    threading.Thread(target=show_signs_of_life, name="billhook-watch", daemon=True).start()
