"""Record the deaths of a supervisor's workers in the inbox, from a thread of the supervisor's process.

A worker that dies before it is known to the inbox leaves no trace there, as one that cannot load the
handlers: then this process looks for issues and has people told, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import NamedTuple

from billhook.basics.concurrency import start_thread
from billhook.basics.printable import printable
from billhook.engines.watch import Watch
from billhook.errors import BillhookError, OutOfResources
from billhook.inbox import Inbox
from billhook.inbox.watching.deaths import record_death_of_child
from billhook.logs import fields

logger = logging.getLogger("billhook.worker")

MARGIN_SECONDS = 0.1
"""How much two clocks may differ. It is less than the shortest pause before a worker is started again."""


class _Death(NamedTuple):
    pid: int
    began: float
    ended: float
    had_started: bool


class DeathRecorder:
    """Takes note of deaths, and never waits: the inbox may be away, or hang."""

    def __init__(self, inbox: Inbox, watch: Watch, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._inbox = inbox
        self._watch = watch
        self._monotonic = monotonic
        self._deaths: SimpleQueue[_Death] = SimpleQueue()
        self._has_thread = False

    def record(self, pid: int, began: float, had_started: bool) -> None:
        """Record that a worker died just now, which began at a time of the monotonic clock."""
        self._deaths.put(_Death(pid, began, self._monotonic(), had_started))
        if not self._has_thread:
            try:
                start_thread(self._work, "billhook-deaths")
                self._has_thread = True
            except OutOfResources as error:  # the next death tries again
                logger.warning("could not record that a worker died: %s", error, extra=fields(cause=error))

    def _work(self) -> None:
        while True:
            had_started = self._record(self._deaths.get())
            while not self._deaths.empty():
                had_started &= self._record(self._deaths.get())
            if not had_started:
                self._watch.look_and_send()
            self._inbox.database.close()  # this process needs a connection for these moments only

    def _record(self, death: _Death) -> bool:
        """Record it; return whether it had started, so that it or its successor looks for issues."""
        ago, lived = self._monotonic() - death.ended, death.ended - death.began
        try:
            at = self._inbox.now() - timedelta(seconds=ago)
            started_at = at - timedelta(seconds=lived + MARGIN_SECONDS)
            record_death_of_child(self._inbox, death.pid, started_at, at)
        except BillhookError as error:
            text = "could not record that a worker died: %s"
            logger.warning(text, printable(str(error)), extra=fields(cause=error))
        return death.had_started
