"""The RQ engine: handlers run in RQ's workers, which fork a child for each message.

Messages are JSON, and have no time limit and no retries of RQ's: a handler has its own time-out, which a
limit of RQ's would not respect while a result is written, and retries are due in the inbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from redis import ConnectionPool
from rq import Queue, Worker, get_current_job
from rq.connections import parse_connection
from rq.serializers import JSONSerializer

from billhook.basics.engine_kinds import RQ
from billhook.engines.messages.broker import BROKER_TIMEOUT_SECONDS, TASK, Broker
from billhook.engines.messages.engine import MessageEngine, handle_message
from billhook.engines.messages.named import find_named
from billhook.engines.messages.sweeping_process import SweepingProcess
from billhook.errors import ConfigError
from billhook.settings import Settings

FAILED_SECONDS = 3600
"""How long RQ keeps the message of a child that was killed: the sweep sends another."""
_LIMITS = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), BROKER_TIMEOUT_SECONDS)
_bound: dict[str, RQEngine] = {}
"""The engines of this process by the names of their queues."""


def handle(*arguments: Any, **named: Any) -> None:
    """Handle the delivery of a message: the function that jobs name."""
    job: Any = get_current_job()
    handle_message(_bound.get(job.origin), arguments, named, ends=True)


class RQBroker(Broker):
    """The Redis of a queue, over a connection with limits of its own, which opens itself again."""

    def __init__(self, queue: Any) -> None:
        self._users = queue

    @cached_property
    def _queue(self) -> Any:
        redis, connection, given = parse_connection(self._users.connection)
        pool = ConnectionPool(connection_class=connection, **{**given, **_LIMITS})
        own = {"connection": redis(connection_pool=pool), "serializer": self._users.serializer}
        return Queue(self._users.name, **own)

    def publish(self, delivery_id: int) -> None:
        """Send a message once; Redis has it in memory then, and on disk as it is configured."""
        how = {"timeout": -1, "result_ttl": 0, "failure_ttl": FAILED_SECONDS, "description": TASK}
        self._queue.enqueue_call(f"{__name__}.handle", (delivery_id,), **how)

    def queue_length(self) -> int:
        """Return how many messages wait in the queue."""
        return int(self._queue.count)

    def disconnect(self) -> None:
        """Drop the connection."""
        self._queue.connection.connection_pool.disconnect()

    close = disconnect


@dataclass(eq=False, repr=False)
class RQEngine(MessageEngine):
    """Publishes to the user's queue, and gives RQ the class of its workers."""

    kind = RQ
    queue: Any

    @classmethod
    def parts(cls, settings: Settings, extensions: Mapping[str, Any]) -> dict[str, Any]:
        """Return the queue. Raises ConfigError for one whose messages are pickles."""
        where = "BILLHOOK_RQ_QUEUE", "myshop.tasks:queue", settings.rq_queue
        queue = find_named(Queue, "RQ queue", RQ.name, *where, extensions)
        if queue.serializer is not JSONSerializer:
            raise ConfigError(
                f"the RQ queue {queue.name} does not write JSON: with pickle, anyone who can write to Redis "
                "runs code in the workers, so billhook refuses to work with it; make it by "
                f'Queue("{queue.name}", connection=…, serializer=rq.serializers.JSONSerializer)'
            )
        return {"queue": queue}

    def broker_factory(self) -> Callable[[], RQBroker]:
        """Return what makes a broker of the queue."""
        return partial(RQBroker, self.queue)

    def bind(self, extensions: dict[str, Any]) -> None:
        """Make this the engine of the queue's messages in this process, and of the workers that start."""
        _bound[self.queue.name] = self
        extensions[self.kind.extension] = type("BillhookWorker", (SweepingWorker,), {"engine": self})

    def stop(self) -> None:
        """Publish the ids that wait if that is quick, end the publisher, and handle no more messages."""
        super().stop()
        if _bound.get(self.queue.name) is self:
            del _bound[self.queue.name]


class SweepingWorker(Worker):
    """RQ's worker for the queue of `engine` alone, by its Redis and in JSON, with a process that sweeps."""

    engine: RQEngine

    def __init__(self, queues: Any, **named: Any) -> None:
        own = self.engine.queue
        if (names := [each.name for each in queues]) not in (["default"], [own.name]):
            raise SystemExit(f"Error: this worker is for the queue {own.name} alone, and not for {names}")
        super().__init__([own], **{**named, "connection": own.connection, "serializer": own.serializer})
        self._sweeping = SweepingProcess(self.engine)

    def heartbeat(self, *arguments: Any, **named: Any) -> None:
        """See to it that the sweep runs: RQ calls this before and after each message."""
        if not self.is_horse:
            self._sweeping.ensure()
        super().heartbeat(*arguments, **named)

    def teardown(self) -> Any:
        """End the sweep with the worker."""
        if not self.is_horse:
            self._sweeping.stop()
        return super().teardown()  # type: ignore[no-untyped-call]
