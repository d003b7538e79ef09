"""Sweep in a process beside a worker that forks a child for each message.

A child that is forked while a thread of ours holds a lock, such as one of SQLite's, would wait for it for
ever. So such a worker has no thread that sweeps, but a process: while it lives, the worker is listed.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import suppress

from billhook.engines.messages.engine import MessageEngine
from billhook.errors import BillhookError

logger = logging.getLogger("billhook.engines")

STOP_SECONDS = 5.0
"""How long a stop waits for it: storage may be slow, or gone."""
LOOK_SECONDS = 0.2
"""How often the process looks whether its worker has ended."""


class SweepingProcess:
    """A child of the worker that calls `ensure` whenever it has time."""

    def __init__(self, engine: MessageEngine) -> None:
        self._engine = engine
        self._pid = 0

    def ensure(self) -> None:
        """Start it, unless it runs."""
        if self._pid and not self._has_ended():
            return
        dispatcher, worker = self._engine.dispatcher, os.getpid()
        with suppress(BillhookError):  # the children plan by the list that is written here, or write it
            dispatcher.lists.require(dispatcher.clock.now(), is_worker=True)
        self._pid = os.fork()
        if not self._pid:
            try:
                self._sweep_for(worker)
            except Exception:
                logger.exception("the sweep beside this worker has ended, and is started again")
            finally:
                os._exit(0)

    def stop(self) -> None:
        """End it in order, or after STOP_SECONDS."""
        end = time.monotonic() + STOP_SECONDS
        number = signal.SIGTERM
        while self._pid and not self._has_ended():
            os.kill(self._pid, number)
            time.sleep(0.05)
            number = signal.SIGTERM if time.monotonic() < end else signal.SIGKILL

    def _has_ended(self) -> bool:
        try:
            return os.waitpid(self._pid, os.WNOHANG) != (0, 0)
        except ChildProcessError:  # where SIGCHLD is ignored, no one has to wait for it
            return True

    def _sweep_for(self, worker: int) -> None:
        ending: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the worker ends this process
        self._engine.start_sweeping()
        while not ending and os.getppid() == worker:
            time.sleep(LOOK_SECONDS)
        self._engine.stop()
