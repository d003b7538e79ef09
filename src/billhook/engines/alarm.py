"""What the loop sleeps on: a pipe that this process writes to, and the bell that others ring."""

from __future__ import annotations

import os
import select
from contextlib import suppress

from billhook.inbox import Inbox

__all__ = ["Alarm"]


class Alarm:
    """`ring` from any thread of this process, `sleep` in the loop; a ring while awake is not lost."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._rung = False

    def ring(self) -> None:
        """There may be something to do; cheap when that is known already."""
        if not self._rung:
            self._rung = True
            with suppress(BlockingIOError):
                os.write(self._write, b"!")

    def hush(self) -> None:
        """Call before each look at what is to be done: whatever comes from now on rings again."""
        self._rung = False
        with suppress(OSError):  # no bell is to be had: the slow look finds the rows
            self._inbox.bell.listen()

    def sleep(self, seconds: float) -> None:
        """Sleep so long, or until somebody rings."""
        if seconds <= 0 or self._rung:
            return
        bell = self._inbox.bell
        poll = select.poll()  # select() refuses descriptors from 1,024 on
        poll.register(self._read, select.POLLIN)
        with suppress(OSError):
            poll.register(bell.listen(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        if self._read in ready:
            with suppress(BlockingIOError):
                os.read(self._read, 65_536)
        if ready - {self._read}:
            with suppress(OSError):
                bell.wait(0)
