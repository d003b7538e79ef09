"""The publisher: a thread that publishes the ids of committed deliveries to the broker, and sweeps.

Publishing is best effort. The inbox is the source of truth, so an id that cannot be published is dropped: the
sweep in the workers finds every pending delivery and publishes it again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from billhook.basics.concurrency import reset_in_child, start_thread
from billhook.basics.printable import first_line
from billhook.engines.messages.broker import Broker
from billhook.errors import BillhookError
from billhook.logs import fields

logger = logging.getLogger("billhook.engines")

QUEUE_LIMIT = 10_000
"""How many ids may wait to be published; if more do, the broker is down or slower than the receiver."""
INBOX_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 5.0
STOP_SECONDS = 2.0
"""How long a stop waits for the ids that are queued."""

Sweep = Callable[[Callable[[], int], Callable[[int], None]], float]


class Publisher:
    """Starts at first use, once in each process. `publish` and `request_stop` never block."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        """`broker` is called once in each process."""
        self._make_broker = broker
        self._inherited: list[Broker] = []
        self._reset()
        reset_in_child(self._reset_in_child)

    def _reset(self) -> None:
        self._starting = threading.Lock()
        self._broker = self._make_broker()
        self._sweep: Sweep | None = None
        self._on_stop: Callable[[], object] = lambda: None
        self._ids: SimpleQueue[int | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._failures = 0
        self._sweep_at = 0.0

    def _reset_in_child(self) -> None:
        # Kept for ever: if its connection were closed here, the parent's would be closed too.
        self._inherited.append(self._broker)
        self._reset()

    def start(self, sweep: Sweep | None = None, on_stop: Callable[[], object] = lambda: None) -> None:
        """Start the thread in this process, unless it was stopped. Raises OutOfResources.

        With `sweep` it calls that too, with the broker's `queue_length` and its own `publish`: it returns the
        seconds until its next call. `on_stop` is called when the thread ends in order.
        """
        with self._starting:
            if sweep is not None:
                self._sweep, self._on_stop = sweep, on_stop
                self._ids.put(None)  # the thread may be asleep until the next id
            if not (self._running() or self._stopping):
                self._thread = start_thread(self._work, "billhook-publisher")

    def _running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def publish(self, delivery_id: int) -> bool:
        """Queue an id to be published; return False if it was dropped because too many wait."""
        if not self._running():  # not yet, or this process was forked since: threads do not survive a fork
            self.start()
        # Bounded, as the process's memory is; the sweep finds in the inbox what is dropped here.
        if self._ids.qsize() >= QUEUE_LIMIT:
            return False
        self._ids.put(delivery_id)
        return True

    def request_stop(self) -> None:
        """Ask the thread to stop when it has published what waits. A signal handler may call it."""
        self._stopping = True
        self._ids.put(None)

    def stop(self) -> None:
        """Publish the ids that wait if that is quick, and end the thread."""
        if self._thread is not None:
            self.request_stop()
            self._thread.join(STOP_SECONDS)

    def reopen(self) -> None:
        """Let the thread start again after `stop`."""
        self._stopping = False

    def _work(self) -> None:
        while True:
            delivery_id = self._next()
            if delivery_id is None and self._stopping:
                break
            try:
                if delivery_id is not None:
                    self._publish(delivery_id)
                # Between ids, in the same thread: the broker's connection is for one thread.
                if self._sweep is not None and time.monotonic() >= self._sweep_at:
                    self._sweep_at = time.monotonic() + self._sweep(self._broker.queue_length, self._publish)
            except BillhookError as error:
                text = "sweep failed, retrying in %.1f s: %s"
                logger.error(text, INBOX_PAUSE_SECONDS, error, extra=fields(cause=error))  # noqa: TRY400
                self._sweep_at = time.monotonic() + INBOX_PAUSE_SECONDS
            except Exception as error:  # noqa: BLE001 - brokers and their drivers raise anything
                self._back_off(error)
                if self._stopping:
                    break
        with suppress(Exception):
            self._on_stop()
            self._broker.close()

    def _next(self) -> int | None:
        """Wait for the next id; return None when a sweep is due, or the thread is to stop."""
        try:
            left = None if self._sweep is None else max(0.0, self._sweep_at - time.monotonic())
            return self._ids.get(timeout=left)
        except Empty:
            return None

    def _publish(self, delivery_id: int) -> None:
        self._broker.publish(delivery_id)
        if self._failures:
            self._failures = 0
            logger.info("broker available again")

    def _back_off(self, error: Exception) -> None:
        """Drop the connection and sleep, longer after each failure."""
        self._broker.disconnect()
        if not self._failures:
            text = "broker unavailable, deliveries wait in the inbox: %s"
            cause = first_line(f"{type(error).__name__}: {error}")
            logger.warning(text, cause, extra=fields(cause=error))
        self._failures += 1
        end = time.monotonic() + min(MAX_PAUSE_SECONDS, 0.25 * 2 ** min(self._failures, 5))
        while not self._stopping and time.monotonic() < end:  # no Event: see `request_stop`
            time.sleep(0.05)
