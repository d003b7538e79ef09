"""The engine over a queue: the publisher in the web processes, the messages and the sweep in the workers.

A message carries a delivery's id and nothing else: the inbox is the source of truth, retries are due there,
and a sweep finds the deliveries whose message was lost. A queue of its own adds a broker, the task that
calls `handle_message`, and the moments at which its workers start and stop.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from billhook.basics.concurrency import reset_in_child, unique_process_name
from billhook.engines.inline import Engine
from billhook.engines.maintenance import Maintenance, WorkerRegistration
from billhook.engines.messages.broker import TASK, Broker
from billhook.engines.messages.isolation import Isolation
from billhook.engines.messages.publisher import Publisher
from billhook.engines.messages.sweeper import SWEEP_SECONDS, Sweeper
from billhook.engines.reporting import log_paused
from billhook.engines.serial import SerialWorker
from billhook.errors import BillhookError, InboxUnavailable
from billhook.logs import fields

logger = logging.getLogger("billhook.engines")

SETTLE_SECONDS = 300.0
"""How long a result is kept and retried while the inbox cannot be written."""


class MessageEngine(Engine):
    """What the engine of a queue is made of: `kind` and `broker_factory` are its own."""

    def __post_init__(self) -> None:
        self._publisher = Publisher(self.broker_factory())
        self._reset()
        reset_in_child(self._reset)

    def broker_factory(self) -> Callable[[], Broker]:
        """Return what makes a broker, once in each process. It must not hold this engine."""
        raise NotImplementedError

    def _reset(self) -> None:
        self._isolation = Isolation(self.lease_seconds)
        self._idle: deque[SerialWorker] = deque()
        self._registration = WorkerRegistration(
            self.inbox, unique_process_name(), self.kind.name, self.dispatcher.lists
        )

    def start(self) -> None:
        """Start the publisher in this web process, also after `stop`."""
        self._publisher.reopen()
        self._publisher.start()

    def wake(self, delivery_id: int) -> None:
        """Publish a committed delivery's id soon. Never waits: the sweep finds what is not published."""
        self._publisher.publish(delivery_id)

    def stop(self) -> None:
        """Publish the ids that wait if that is quick, and end the publisher."""
        self._publisher.stop()

    def flush(self) -> None:
        """Publish the ids that wait, if that is quick: this process may end now."""
        self._publisher.stop()
        self._publisher.reopen()

    def execute(self, delivery_id: int) -> None:
        """Call the due handlers of one delivery, in a worker of the queue. Raises InboxUnavailable.

        A handler that hangs does not hold its siblings: there is a message for each. Suspects come last, and
        each runs alone in this process.
        """
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = SerialWorker(
                self.inbox,
                self.dispatcher,
                lease_seconds=self.lease_seconds,
                announce=self._publish_all,
                settle_seconds=SETTLE_SECONDS,
            )
        isolation = self._isolation
        try:
            with isolation.shared():
                worker.handle(delivery_id, beside=isolation.suspects)
            # Outside `shared`: a thread that held it and waited for `alone` would wait for itself.
            if worker.suspect_due:
                with isolation.alone(worker):
                    worker.handle(delivery_id, suspect=True)
        finally:
            if worker.held():  # after an error: what it claimed is due when its lease ends
                worker.close()
            else:
                self._idle.append(worker)

    def _publish_all(self, delivery_ids: Iterable[int]) -> None:
        for delivery_id in delivery_ids:
            self._publisher.publish(delivery_id)

    def register(self) -> None:
        """Register this process as a worker, before it forks: its children plan by the list written here."""
        self._registration.refresh(self.dispatcher.clock.now())

    def start_sweeping(self, look: Callable[[datetime, bool], object] = lambda now, unclaimed: None) -> None:
        """Sweep in this process from now on: a retry's message is published when it is due.

        It prunes old deliveries and registers itself as a worker too, as `billhook worker` does. `look` is
        called after each sweep, with whether a delivery is late.
        """
        maintenance = Maintenance(self.inbox, self.maintenance, registration=self._registration)
        sweeper = Sweeper(self.inbox, self.dispatcher, self._registration)

        def sweep(queue_length: Callable[[], int], publish: Callable[[int], None]) -> float:
            pause = sweeper.sweep(queue_length, publish)
            now = self.dispatcher.clock.now()
            look(now, sweeper.is_unclaimed)
            return min(pause, maintenance.run_if_due(now))

        log_paused(self.inbox, self.dispatcher.sender)
        maintenance.start(self.dispatcher.clock.now())
        self._publisher.start(sweep, maintenance.close)


def handle_message(
    engine: MessageEngine | None,
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    *,
    ends: bool = False,
) -> None:
    """Handle the delivery that a message names. It never raises: each message is acknowledged.

    `ends`: this process ends soon, so it waits a little until its own messages are published.
    """
    if engine is None:
        logger.error("received a message for a closed billhook: its delivery stays in the inbox")
    elif named or len(arguments) != 1 or type(arguments[0]) is not int or not 0 < arguments[0] < 2**63:
        # The argument is not logged: anyone who can write to the broker may have sent it.
        logger.error("rejected a message for %s: its argument is not a delivery id", TASK)
    else:
        _execute(engine, arguments[0])
        if ends:
            engine.flush()


def _execute(engine: MessageEngine, delivery_id: int) -> None:
    try:
        try:
            engine.execute(delivery_id)
        except InboxUnavailable:
            # A lost connection, or a failure that no sweep may see. What lasts longer, the sweep notices, and
            # it publishes all that is pending again when it is over.
            time.sleep(SWEEP_SECONDS)
            engine.execute(delivery_id)
    # Not raised: the queue would log it as a failed task and drop the message all the same.
    except BillhookError as error:
        extra = fields(delivery_id=delivery_id, cause=error)
        logger.error("delivery %d stays in the inbox: %s", delivery_id, error, extra=extra)  # noqa: TRY400
    except Exception as error:
        extra = fields(delivery_id=delivery_id, cause=error)
        logger.exception("delivery %d stays in the inbox", delivery_id, extra=extra)
