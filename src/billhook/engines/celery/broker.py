"""The broker of a Celery app: publish a message, count those that wait, ask the workers what they consume."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from billhook.engines.messages.broker import BROKER_TIMEOUT_SECONDS, TASK, Broker

ASK_SECONDS = 1.0
"""How long to wait for the answers of the workers."""


class CeleryBroker(Broker):
    """The broker of a Celery app. Its methods raise any error of kombu and its drivers."""

    def __init__(self, celery: Any) -> None:
        self._celery = celery
        self._connection: Any = None
        self._producer: Any = None

    def publish(self, delivery_id: int) -> None:
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
        """Return how many messages, of any task, are in the queue that the task is routed to."""
        producer, queue = self._open(), self._queue()
        return 0 if queue is None else int(queue(producer.channel).queue_declare().message_count)

    def queue_name(self) -> str | None:
        """Return the name of the queue that the task is routed to; None where only the broker knows it."""
        queue = self._queue()
        return None if queue is None else str(queue.name)

    def _queue(self) -> Any:
        """Return the queue that the task is routed to; None for an exchange and a routing key."""
        task = self._celery.tasks.get(TASK)  # a command that only asks has none
        return self._celery.amqp.router.route({}, TASK, (), {}, task).get("queue")

    def ask_workers(self) -> tuple[dict[str, list[str]], list[int]]:
        """Return the queues that each worker consumes, by its name, and the process ids of the workers.

        Leave out workers that do not answer within ASK_SECONDS. The question is sent over a connection of its
        own.
        """
        connection = self._connect()
        try:
            inspect = self._celery.control.inspect(timeout=ASK_SECONDS, connection=connection)
            queues = {
                name: [each["name"] for each in found]
                for name, found in (inspect.active_queues() or {}).items()
            }
            pids = [found["pid"] for found in (inspect.stats() or {}).values()] if queues else []
        finally:
            with suppress(Exception):
                connection.collect(socket_timeout=0.1)
        return queues, pids

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
        # Each broker of a list is tried once: the publisher decides when to try again.
        connection.ensure_connection(max_retries=max(0, len(connection.alt) - 1), interval_start=0)
        # py-amqp has no time-out for its own requests: a channel, a queue, the rest of a half-read frame.
        socket = getattr(connection.connection, "sock", None)
        if socket is not None:
            socket.settimeout(BROKER_TIMEOUT_SECONDS)
        return connection
