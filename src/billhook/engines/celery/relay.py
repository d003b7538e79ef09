"""The relay: a thread that publishes the ids of committed deliveries to the Celery broker.

Publishing is best effort. The inbox is the source of truth, so an id that cannot be published is dropped: a
sweep, in this process or in another, finds every pending delivery and publishes it again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from billhook.engines.celery.sweeper import Sweeper
from billhook.errors import BillhookError
from billhook.logs import fields
from billhook.printable import first_line
from billhook.threads import reset_in_child, start_thread

__all__ = ["Publisher", "Relay"]

logger = logging.getLogger("billhook.engines")

QUEUE_LIMIT = 10_000
"""Ids that wait to be published; with more, the broker is down or slower than the receiver."""
INBOX_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 5.0
FLUSH_SECONDS = 1.0
"""How long a relay that is stopped goes on publishing the ids that wait."""
BROKER_TIMEOUT_SECONDS = 5.0
"""How long the broker may take for any one answer."""


class Publisher:
    """Publishes one message for each id, over a connection opened at first use and kept.

    For one thread, and never across a fork. Every method raises any error of kombu and its drivers; call
    `disconnect` then.
    """

    def __init__(self, celery: Any, task: str) -> None:
        """`celery` is the user's app, `task` the name of the task that the messages are for."""
        self._celery = celery
        self._task = task
        self._connection: Any = None
        self._producer: Any = None

    def publish(self, delivery_id: int) -> None:
        """Send a message once, and return when the broker has confirmed it."""
        self._celery.tasks[self._task].apply_async(
            (delivery_id,),
            producer=self._open(),
            serializer="json",
            ignore_result=True,
            # Retries of kombu's own would hold up every id behind this one; the sweeper sends it again.
            retry=False,
            timeout=BROKER_TIMEOUT_SECONDS,
            confirm_timeout=BROKER_TIMEOUT_SECONDS,
        )

    def queue_length(self) -> int:
        """Return the messages, of any task, in the queue that the task is routed to."""
        producer = self._open()
        task = self._celery.tasks[self._task]
        queue = self._celery.amqp.router.route({}, self._task, (), {}, task).get("queue")
        if queue is None:  # routed by exchange and routing key: only the broker knows to which queue
            return 0
        return int(queue(producer.channel).queue_declare().message_count)

    def disconnect(self) -> None:
        """Drop the connection without a closing handshake: the broker may not answer."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.collect(socket_timeout=0.1)

    def close(self) -> None:
        """Close the connection in order."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            connection.release()

    def _open(self) -> Any:
        if self._producer is None:
            self._connection = connection = self._connect()
            self._producer = self._celery.amqp.Producer(connection.default_channel, auto_declare=False)
        return self._producer

    def _connect(self) -> Any:
        conf = self._celery.conf
        # With confirms, `publish` returns only once the broker has the message: without them, a message that
        # was lost on the way would count as published, and wait for the sweeper's second look.
        ours = {  # each transport reads those that it knows and ignores the others
            "confirm_publish": True,
            "socket_timeout": BROKER_TIMEOUT_SECONDS,
            "socket_connect_timeout": BROKER_TIMEOUT_SECONDS,
        }
        timeout = min(conf.broker_connection_timeout or BROKER_TIMEOUT_SECONDS, BROKER_TIMEOUT_SECONDS)
        connection = self._celery.connection_for_write(
            connect_timeout=timeout,
            transport_options={**ours, **conf.broker_transport_options, "max_retries": 0},
        )
        # Each broker of a list is tried once: the relay decides when to try again.
        connection.ensure_connection(max_retries=max(0, len(connection.alt) - 1), interval_start=0)
        # py-amqp has no time-out for its own requests: a channel, a queue, the rest of a half-read frame.
        socket = getattr(connection.connection, "sock", None)
        if socket is not None:
            socket.settimeout(BROKER_TIMEOUT_SECONDS)
        return connection


class Relay:
    """Starts at first use, once in each process. `publish` and `request_stop` never block."""

    def __init__(self, publisher: Callable[[], Publisher], sweeper: Callable[[], Sweeper]) -> None:
        """Both factories are called once in each process."""
        self._make_publisher = publisher
        self._make_sweeper = sweeper
        self._inherited: list[object] = []
        self._reset()
        reset_in_child(self._reset_in_child)

    def _reset(self) -> None:
        self._starting = threading.Lock()
        self._publisher = self._make_publisher()
        self._sweeper = self._make_sweeper()
        self._sweep_delay_seconds: float | None = None
        self._maintain: Callable[[], float] | None = None
        self._on_stop: Callable[[], object] | None = None
        self._ids: SimpleQueue[int | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._failures = 0
        self._sweep_at = 0.0

    def _reset_in_child(self) -> None:
        # Kept for ever: if its connection were closed here, the parent's would be closed too.
        self._inherited.append(self._publisher)
        self._reset()

    def start(
        self,
        sweep_delay_seconds: float | None = None,
        maintain: Callable[[], float] | None = None,
        on_stop: Callable[[], object] | None = None,
    ) -> None:
        """Start in this process; with `sweep_delay_seconds` it sweeps too: see Sweeper.due.

        `maintain` is called after each sweep and returns the seconds until its next call; `on_stop` is
        called when the relay stops in order.
        """
        if self._running() and sweep_delay_seconds == self._sweep_delay_seconds:
            return
        with self._starting:
            if sweep_delay_seconds is not None:
                self._sweep_delay_seconds = sweep_delay_seconds
                self._maintain, self._on_stop = maintain, on_stop
                if self._running():
                    self._ids.put(None)  # the thread may be asleep until the next id
            if not (self._running() or self._stopping):
                self._thread = start_thread(self._work, "billhook-relay")

    def _running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def publish(self, delivery_id: int) -> bool:
        """Queue an id to be published; return False if it was dropped because too many wait."""
        if not self._running():
            self.start()
        # Bounded, as the process's memory is; the sweeper finds in the inbox what is dropped here.
        if self._ids.qsize() >= QUEUE_LIMIT:
            return False
        self._ids.put(delivery_id)
        return True

    def request_stop(self) -> None:
        """Ask the thread to stop soon. Takes no lock, so a signal handler may call it."""
        self._stopping = True
        self._ids.put(None)

    def stop(self) -> None:
        """Publish the ids that wait if that is quick, and end the thread."""
        thread = self._thread
        if thread is not None:
            self.request_stop()
            thread.join(FLUSH_SECONDS + 1.0)

    def _work(self) -> None:
        while not self._stopping:
            delivery_id = self._next()
            try:
                if delivery_id is not None:
                    self._publish(delivery_id)
                # Between ids, in the same thread: the broker's connection is for one thread.
                if self._sweep_delay_seconds is not None and time.monotonic() >= self._sweep_at:
                    self._sweep_at = time.monotonic() + self._sweep(self._sweep_delay_seconds)
            except BillhookError as error:
                text = "sweep failed, retrying in %.1f s: %s"
                logger.error(text, INBOX_PAUSE_SECONDS, error, extra=fields(cause=error))  # noqa: TRY400
                self._sweep_at = time.monotonic() + INBOX_PAUSE_SECONDS
            except Exception as error:  # noqa: BLE001 - brokers and their drivers raise anything
                self._back_off(error)
        self._finish()

    def _next(self) -> int | None:
        """Wait for the next id; return None when a sweep is due, or `start` or `request_stop` was called."""
        if self._sweep_delay_seconds is None:
            return self._ids.get()
        try:
            return self._ids.get(timeout=max(0.0, self._sweep_at - time.monotonic()))
        except Empty:
            return None

    def _sweep(self, delay_seconds: float) -> float:
        """Publish what is pending; return the seconds until the next sweep."""
        for delivery_id in self._sweeper.due(delay_seconds, self._publisher.queue_length):
            if self._stopping:
                break
            # Marked only after the confirm: an error leaves this one and the rest for the next sweep.
            self._publish(delivery_id)
            self._sweeper.mark_published(delivery_id)
        pause = self._sweeper.pause_seconds(delay_seconds)
        return pause if self._maintain is None else min(pause, self._maintain())

    def _publish(self, delivery_id: int) -> None:
        self._publisher.publish(delivery_id)
        if self._failures:
            self._failures = 0
            logger.info("broker available again")

    def _back_off(self, error: Exception) -> None:
        """Drop the connection and sleep, longer after each failure."""
        self._publisher.disconnect()
        if not self._failures:
            text = "broker unavailable, deliveries wait in the inbox: %s"
            cause = first_line(f"{type(error).__name__}: {error}")
            logger.warning(text, cause, extra=fields(cause=error))
        self._failures += 1
        end = time.monotonic() + min(MAX_PAUSE_SECONDS, 0.25 * 2 ** min(self._failures, 5))
        while not self._stopping and time.monotonic() < end:  # no Event: see `request_stop`
            time.sleep(0.05)

    def _finish(self) -> None:
        if self._on_stop is not None:
            self._on_stop()
        end = time.monotonic() + FLUSH_SECONDS
        with suppress(Exception):
            while not self._failures and time.monotonic() < end and not self._ids.empty():
                delivery_id = self._ids.get()
                if delivery_id is not None:
                    self._publish(delivery_id)
            self._publisher.close()
