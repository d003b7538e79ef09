"""The courier: a thread that tells Celery's workers which deliveries there are to handle.

Nobody waits for it. The rows are the truth and a message is only a ring at the door, so an id that cannot
be sent is let go of: the sweep finds every delivery that is waiting, in this process or in another.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from billhook.engines.doorbell import Doorbell
from billhook.engines.sweep import Sweep
from billhook.errors import BillhookError
from billhook.inbox.forking import SETTING_UP

__all__ = ["Courier"]

logger = logging.getLogger("billhook.engines")

QUEUE_LIMIT = 10_000
"""Ids that wait to be sent; with more than that the broker is down, or slower than the receiver."""
INBOX_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 5.0
LAST_SECONDS = 1.0
"""How long, when it is stopped, it goes on sending what waits."""


class Courier:
    """Started at first use, once in each process. `ring` and `halt` never wait."""

    def __init__(self, doorbell: Callable[[], Doorbell], sweep: Callable[[], Sweep]) -> None:
        """Both are made anew in each process."""
        self._make_doorbell = doorbell
        self._make_sweep = sweep
        self._forked: list[object] = []
        self._start_over()

    def _start_over(self) -> None:
        self._doorbell = self._make_doorbell()
        self._sweep = self._make_sweep()
        self._patience_seconds: float | None = None
        self._chore: Callable[[], float] | None = None
        self._last_chore: Callable[[], object] | None = None
        self._ids: SimpleQueue[int | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._failures = 0
        self._look_at = 0.0
        self._pid = os.getpid()  # last: whoever sees it uses what is above

    def start(
        self,
        patience_seconds: float | None = None,
        chore: Callable[[], float] | None = None,
        last_chore: Callable[[], object] | None = None,
    ) -> None:
        """Begin in this process; with `patience_seconds` it sweeps too: see Sweep.look.

        `chore` is called beside that, and returns the seconds until it wants to be called again;
        `last_chore` is called at an orderly end.
        """
        if self._running() and patience_seconds == self._patience_seconds:
            return
        with SETTING_UP:
            if self._pid != os.getpid():
                self._forked.append(self._doorbell)  # closed here, it would be closed in the parent
                self._start_over()
            if patience_seconds is not None:
                self._patience_seconds, self._chore, self._last_chore = patience_seconds, chore, last_chore
                self._ids.put(None)  # it may be asleep until the next id
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._work, name="billhook-courier", daemon=True)
                self._thread.start()

    def _running(self) -> bool:
        return self._thread is not None and self._pid == os.getpid()

    def ring(self, delivery_id: int) -> bool:
        """Have an id sent; False if it was let go of, for too many wait already."""
        if not self._running():
            self.start()
        if self._ids.qsize() >= QUEUE_LIMIT:
            return False
        self._ids.put(delivery_id)
        return True

    def halt(self) -> None:
        """Stop soon; to be called even from a signal's handler, so it takes no lock."""
        self._stopping = True
        self._ids.put(None)

    def stop(self) -> None:
        """Send what waits if that is quick, and end the thread."""
        thread = self._thread
        if thread is not None and self._pid == os.getpid():
            self.halt()
            thread.join(LAST_SECONDS + 1.0)

    def _work(self) -> None:
        while not self._stopping:
            delivery_id = self._next()
            try:
                if delivery_id is not None:
                    self._send(delivery_id)
                if self._patience_seconds is not None and time.monotonic() >= self._look_at:
                    self._look_at = time.monotonic() + self._look(self._patience_seconds)
            except BillhookError as error:
                logger.error("no look for deliveries that wait: %s", error)  # noqa: TRY400 - says it all
                self._look_at = time.monotonic() + INBOX_PAUSE_SECONDS
            except Exception as error:  # noqa: BLE001 - brokers and their drivers raise what they like
                self._rest(error)
        self._finish()

    def _next(self) -> int | None:
        """The next id; None when it is time to look, or somebody has news."""
        if self._patience_seconds is None:
            return self._ids.get()
        try:
            return self._ids.get(timeout=max(0.0, self._look_at - time.monotonic()))
        except Empty:
            return None

    def _look(self, patience_seconds: float) -> float:
        """Ring for what waits; the seconds until the next look."""
        for delivery_id in self._sweep.look(patience_seconds, self._doorbell.waiting):
            if self._stopping:
                break
            self._send(delivery_id)
            self._sweep.rang(delivery_id)
        pause = self._sweep.pause_seconds(patience_seconds)
        return pause if self._chore is None else min(pause, self._chore())

    def _send(self, delivery_id: int) -> None:
        self._doorbell.ring(delivery_id)
        if self._failures:
            self._failures = 0
            logger.info("the broker takes messages again")

    def _rest(self, error: Exception) -> None:
        """After a failure: longer each time, with a new connection after it."""
        self._doorbell.hang_up()
        if not self._failures:
            name = type(error).__name__
            logger.warning("the broker takes no messages, deliveries wait in the inbox: %s: %s", name, error)
        self._failures += 1
        end = time.monotonic() + min(LONGEST_PAUSE_SECONDS, 0.25 * 2 ** min(self._failures, 5))
        while not self._stopping and time.monotonic() < end:
            time.sleep(0.05)

    def _finish(self) -> None:
        if self._last_chore is not None:
            self._last_chore()
        end = time.monotonic() + LAST_SECONDS
        with suppress(Exception):
            while not self._failures and time.monotonic() < end and not self._ids.empty():
                delivery_id = self._ids.get()
                if delivery_id is not None:
                    self._send(delivery_id)
            self._doorbell.close()
