"""The publisher: a thread that publishes the ids of committed deliveries to the Celery broker, and sweeps.

Publishing is best effort. The inbox is the source of truth, so an id that cannot be published is dropped: the
sweep in the workers finds every pending delivery and publishes it again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import Any

from billhook.concurrency import reset_in_child, start_thread
from billhook.engines.dispatcher import Dispatcher
from billhook.errors import BillhookError, InboxUnavailable
from billhook.inbox import Inbox
from billhook.logs import fields
from billhook.printable import first_line

logger = logging.getLogger("billhook.engines")

TASK = "billhook.handle"
"""The task's name, for `task_routes`."""
QUEUE_LIMIT = 10_000
"""Ids that wait to be published; with more, the broker is down or slower than the receiver."""
INBOX_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 5.0
STOP_SECONDS = 2.0
"""How long a stop waits for the ids that are queued."""
BROKER_TIMEOUT_SECONDS = 5.0
"""How long the broker may take for any one answer."""

Sweep = Callable[[Callable[[], int], Callable[[int], None]], float]


class Broker:
    """The broker of a Celery app, over a connection that is opened at first use and kept.

    For one thread, and never across a fork. Its methods raise any error of kombu and its drivers; call
    `disconnect` then.
    """

    def __init__(self, celery: Any) -> None:
        self._celery = celery
        self._connection: Any = None
        self._producer: Any = None

    def publish(self, delivery_id: int) -> None:
        """Send a message once, and return when the broker has confirmed it."""
        self._celery.tasks[TASK].apply_async(
            (delivery_id,),
            producer=self._open(),
            serializer="json",
            ignore_result=True,
            # Retries of kombu's own would hold up every id behind this one; the sweep sends it again.
            retry=False,
            timeout=BROKER_TIMEOUT_SECONDS,
            confirm_timeout=BROKER_TIMEOUT_SECONDS,
        )

    def queue_length(self) -> int:
        """Return the messages, of any task, in the queue that the task is routed to."""
        producer = self._open()
        queue = self._celery.amqp.router.route({}, TASK, (), {}, self._celery.tasks[TASK]).get("queue")
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
        if self._connection is not None:
            self._connection.release()

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
        # Each broker of a list is tried once: the publisher decides when to try again.
        connection.ensure_connection(max_retries=max(0, len(connection.alt) - 1), interval_start=0)
        # py-amqp has no time-out for its own requests: a channel, a queue, the rest of a half-read frame.
        socket = getattr(connection.connection, "sock", None)
        if socket is not None:
            socket.settimeout(BROKER_TIMEOUT_SECONDS)
        return connection


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
        """Wait for the next id; return None when a sweep is due, or another method has something new."""
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


# --- sweep --------------------------------------------------------------------------------------------
# A lost message cannot be told from one that still waits in the broker's queue. So while the queue has
# messages, a delivery that may have one there is published later; and each further message for the same
# delivery is sent later than the one before. A retry had no message: it gets one when it is due.

LIMIT = 500
"""Deliveries read and remembered in a sweep, the longest waiting first."""
SWEEP_SECONDS = 2.0
BUSY_SECONDS = 0.1
"""The pause after a sweep that found as many deliveries as it may read, and published some."""
UNREAD_AFTER = timedelta(seconds=1)
"""The age of an unplanned delivery from which its message may be lost."""
REPUBLISH_SECONDS = 30.0
"""Until the message of a delivery is sent again; doubled each time."""
MAX_REPUBLISH_SECONDS = 3600.0


class Sweeper:
    """Publishes deliveries again whose message was lost, dropped or never sent. For one thread.

    It reads the inbox, and remembers what it published for as long as that is pending.
    """

    def __init__(self, inbox: Inbox, dispatcher: Dispatcher) -> None:
        self._inbox = inbox
        self._dispatcher = dispatcher
        # When to publish again what is pending since then, and the pause after that.
        self._published: dict[tuple[int, datetime], tuple[float, float]] = {}

    def sweep(self, queue_length: Callable[[], int], publish: Callable[[int], None]) -> float:
        """Publish what should be in progress by now, the longest waiting first.

        Return the seconds until the next sweep. `queue_length` is called only when it makes a difference.
        What it and `publish` raise ends the sweep. Raises InboxUnavailable: workers have used up messages in
        vain then, so that the next sweep publishes all that is pending.
        """
        try:
            return self._sweep(queue_length, publish)
        except InboxUnavailable:
            self._published.clear()
            raise

    def _sweep(self, queue_length: Callable[[], int], publish: Callable[[int], None]) -> float:
        now, monotonic = self._dispatcher.clock.now(), time.monotonic()
        limits = self._dispatcher.limits
        found, times = self._inbox.pending(limits, received_before=now - UNREAD_AFTER, now=now, limit=LIMIT)
        keys = {(each.delivery_id, each.since) for each in found}
        # What is not pending any more is forgotten, and so is what is pending for another reason.
        self._published = {key: turn for key, turn in self._published.items() if key in keys}
        queue_is_empty, count = None, 0
        for each in found:
            key = each.delivery_id, each.since
            # The message of a run with a limit is used up if there was no room for it.
            first_pause = SWEEP_SECONDS if each.limited else REPUBLISH_SECONDS
            publish_at, pause = self._published.get(key, (0.0, first_pause))
            if publish_at > monotonic:
                continue
            young = (now - each.since).total_seconds() < REPUBLISH_SECONDS
            if each.fresh and young and not each.limited and key not in self._published:
                # With an empty queue, a delivery that is pending all the same was never published.
                queue_is_empty = not queue_length() if queue_is_empty is None else queue_is_empty
                if not queue_is_empty:
                    continue
            if not count:  # a server that only reads, as a standby in a failover
                self._inbox.check_writable()
            publish(each.delivery_id)
            count += 1
            # Doubled: in a long queue the first message still waits, and each further one only lengthens it.
            longest = SWEEP_SECONDS if each.limited else MAX_REPUBLISH_SECONDS
            self._published[key] = monotonic + pause, min(pause * 2, longest)
        if count and len(found) == LIMIT:
            return BUSY_SECONDS
        next_at = times.after(now)
        if next_at is None:
            return SWEEP_SECONDS
        return max(0.01, min(SWEEP_SECONDS, (next_at - self._dispatcher.clock.now()).total_seconds()))
