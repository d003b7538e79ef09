"""Ringing at Celery's workers: one message with a delivery's id, taken by the broker or known to be lost."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

__all__ = ["Doorbell"]

PATIENCE_SECONDS = 5.0
"""How long the broker may take for any one answer."""


class Doorbell:
    """One connection to the broker, opened at need and kept. For one thread, and never across a fork.

    Every method raises whatever kombu and the drivers below it do; call `hang_up` then.
    """

    def __init__(self, celery: Any, task: str) -> None:
        """The user's Celery app, and the name of the task that a message is for."""
        self._celery = celery
        self._task = task
        self._connection: Any = None
        self._producer: Any = None

    def ring(self, delivery_id: int) -> None:
        """Return when the broker has taken the message. Tried once."""
        self._celery.tasks[self._task].apply_async(
            (delivery_id,),
            producer=self._open(),
            serializer="json",
            ignore_result=True,
            retry=False,
            timeout=PATIENCE_SECONDS,
            confirm_timeout=PATIENCE_SECONDS,
        )

    def waiting(self) -> int:
        """Messages in the queue that the task is routed to, of this and any other task."""
        producer = self._open()
        task = self._celery.tasks[self._task]
        queue = self._celery.amqp.router.route({}, self._task, (), {}, task).get("queue")
        if queue is None:  # routed by exchange and key: where that leads is the broker's to know
            return 0
        return int(queue(producer.channel).queue_declare().message_count)

    def hang_up(self) -> None:
        """Forget the connection without a word to the other side, which may not be listening."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.collect(socket_timeout=0.1)

    def close(self) -> None:
        """Hang up in order."""
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
        ours = {  # each transport knows some of them and passes over the others
            "confirm_publish": True,
            "socket_timeout": PATIENCE_SECONDS,
            "socket_connect_timeout": PATIENCE_SECONDS,
        }
        connection = self._celery.connection_for_write(
            connect_timeout=min(conf.broker_connection_timeout or PATIENCE_SECONDS, PATIENCE_SECONDS),
            transport_options={**ours, **conf.broker_transport_options, "max_retries": 0},
        )
        # Once around the list of brokers, if it is one: when to try again is the courier's to say.
        connection.ensure_connection(max_retries=max(0, len(connection.alt) - 1), interval_start=0)
        # py-amqp waits for ever for what it asks: a channel, a queue, the end of a half-read frame.
        socket = getattr(connection.connection, "sock", None)
        if socket is not None:
            socket.settimeout(PATIENCE_SECONDS)
        return connection
