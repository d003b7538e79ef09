"""The Celery engine: handlers run in the workers of the user's own Celery app.

A message carries a delivery's id and nothing else: the inbox is the source of truth, retries are due there,
and a sweep finds the deliveries whose message was lost. Celery is imported when this engine is chosen.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from billhook.concurrency import reset_in_child, unique_process_name
from billhook.engines.celery.app import check_settings
from billhook.engines.celery.publisher import TASK, Broker, Publisher
from billhook.engines.celery.sweeper import SWEEP_SECONDS, Sweeper
from billhook.engines.inline import Engine
from billhook.engines.maintenance import Maintenance, WorkerRegistration
from billhook.engines.reporting import log_paused
from billhook.engines.serial import SerialWorker
from billhook.errors import BillhookError, ConfigError, InboxUnavailable
from billhook.inbox import Lease
from billhook.logs import fields

logger = logging.getLogger("billhook.engines")

SETTLE_SECONDS = 300.0
"""How long a result is kept and retried while the inbox cannot be written."""


@dataclass(eq=False, repr=False)
class CeleryEngine(Engine):
    """Both sides of it: the publisher in the web processes, the task and the sweeping in the workers."""

    celery: Any
    """The user's app; nothing in it is changed before `bind`."""

    def __post_init__(self) -> None:
        self.display_url = self.inbox.database.display_url
        self.check()
        self._publisher = Publisher(partial(Broker, self.celery))
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._isolation = Isolation(self.lease_seconds)
        self._idle: deque[SerialWorker] = deque()

    def check(self) -> None:
        """Raise ConfigError if the Celery app's settings do not fit, or it is bound to another inbox."""
        check_settings(self.celery)
        bound: CeleryEngine | None = getattr(self.celery, "billhook", None)
        if bound is not None and bound.display_url != self.display_url:
            raise ConfigError(
                f"the Celery app handles the deliveries of the inbox {bound.display_url} already: give each "
                "Flask app with BILLHOOK_ENGINE=celery one of its own (tests do well with "
                "BILLHOOK_ENGINE=inline)"
            )

    def bind(self) -> None:
        """Make this the engine that handles the Celery app's messages, in workers that start from now on."""
        from celery import signals

        if not hasattr(self.celery, "billhook"):
            _add_task(self.celery)
        self.celery.billhook = self
        # Celery holds them weakly: those of an engine that is gone are not called.
        signals.worker_init.connect(self._on_init)
        signals.worker_ready.connect(self._on_ready)
        signals.worker_shutting_down.connect(self._on_shutting_down)
        signals.worker_shutdown.connect(self._on_shutdown)

    def start(self) -> None:
        """Start the publisher in this web process."""
        self._publisher.start()

    def wake(self, delivery_id: int) -> None:
        """Publish a committed delivery's id soon. Never waits: the sweep finds what is not published."""
        self._publisher.publish(delivery_id)

    def stop(self) -> None:
        """Publish the ids that wait if that is quick, end the publisher, and handle no more messages."""
        self._publisher.stop()
        # Only our own: another app, as in tests, may have bound the Celery app since.
        if self._is_bound():
            self.celery.billhook = None

    def _is_bound(self) -> bool:
        return getattr(self.celery, "billhook", None) is self

    def execute(self, delivery_id: int) -> None:
        """Call the due handlers of one delivery, in a Celery worker. Raises InboxUnavailable.

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

    def _on_init(self, sender: Any, **_: Any) -> None:
        """Check the app's configuration again: a worker starts, and has read all of it."""
        # Signals are global: a process may have several Celery apps.
        if sender.app is self.celery and self._is_bound():
            try:
                self.check()
            except ConfigError as error:
                raise SystemExit(f"Error: {error}") from None  # Celery ignores other errors of this signal

    def _on_ready(self, sender: Any, **_: Any) -> None:
        """Sweep from now on: a retry's message is published when it is due.

        It prunes old deliveries and registers itself as a worker too, as `billhook worker` does.
        """
        if not (sender.app is self.celery and self._is_bound()):
            return
        # In the main process only: its pool's children come and go, and one sweep per worker is enough.
        registration = WorkerRegistration(
            self.inbox, unique_process_name(), "celery", self.dispatcher.handlers.count
        )
        maintenance = Maintenance(self.inbox, self.maintenance, registration=registration)
        sweeper = Sweeper(self.inbox, self.dispatcher)

        def sweep(queue_length: Callable[[], int], publish: Callable[[int], None]) -> float:
            pause = sweeper.sweep(queue_length, publish)
            return min(pause, maintenance.run_if_due(self.dispatcher.clock.now()))

        log_paused(self.inbox, self.dispatcher.sender)
        maintenance.start()
        self._publisher.start(sweep, maintenance.close)

    def _on_shutting_down(self, **_: Any) -> None:
        """Stop sweeping soon. Called within a signal handler, and only in a worker."""
        if self._is_bound():
            self._publisher.request_stop()

    def _on_shutdown(self, **_: Any) -> None:
        """Stop sweeping, and wait a little until this worker's registration is removed."""
        if self._is_bound():
            self._publisher.stop()


def _add_task(celery: Any) -> None:
    """Add the task, which calls the engine that the Celery app is bound to."""
    from celery import Task

    def run(*args: Any, **kwargs: Any) -> None:
        engine: CeleryEngine | None = celery.billhook
        if engine is None:
            logger.error("received a message for a closed billhook: its delivery stays in the inbox")
        elif kwargs or len(args) != 1 or type(args[0]) is not int or not 0 < args[0] < 2**63:
            # The argument is not logged: anyone who can write to the broker may have sent it.
            logger.error("rejected a message for %s: its argument is not a delivery id", TASK)
        else:
            _execute(engine, args[0])

    # Celery's own base class: the app's may do more, and handlers have their Flask context anyway. acks_late
    # and reject_on_worker_lost: the message of a worker that dies is delivered again, at once and not only by
    # a sweep. A second call is no harm: the claim decides. typing=False: a message with wrong arguments has
    # to reach `run`, which refuses it without quoting it.
    celery.task(
        name=TASK,
        base=Task,
        shared=False,
        typing=False,
        serializer="json",
        ignore_result=True,
        acks_late=True,
        reject_on_worker_lost=True,
    )(run)


def _execute(engine: CeleryEngine, delivery_id: int) -> None:
    """Handle a delivery. It never raises: each message is acknowledged."""
    try:
        try:
            engine.execute(delivery_id)
        except InboxUnavailable:
            # A lost connection, or a failure that no sweep may see. What lasts longer, the sweep notices, and
            # it publishes all that is pending again when it is over.
            time.sleep(SWEEP_SECONDS)
            engine.execute(delivery_id)
    # Not raised: Celery would log it as a failed task and, with acks_late, drop the message all the same.
    except BillhookError as error:
        extra = fields(delivery_id=delivery_id, cause=error)
        logger.error("delivery %d stays in the inbox: %s", delivery_id, error, extra=extra)  # noqa: TRY400
    except Exception as error:
        extra = fields(delivery_id=delivery_id, cause=error)
        logger.exception("delivery %d stays in the inbox", delivery_id, extra=extra)


class Isolation:
    """Lets ordinary runs execute side by side, or a suspect alone, in the threads of one process.

    Neither waits longer than a lease time for one that does not end.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._seconds = lease_seconds
        self._changed = threading.Condition()
        self._inside = 0
        self._alone: list[SerialWorker] = []
        self._alone_until = 0.0

    def suspects(self) -> Set[Lease]:
        """Return the leases of suspects that are running: a run that starts now has waited for them."""
        return frozenset(lease for worker in list(self._alone) for lease in worker.held())

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Be inside together with others, but for suspects."""
        with self._changed:
            self._wait_while_alone()
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self, worker: SerialWorker) -> Iterator[None]:
        """Be inside alone, once all others have left; new ones wait meanwhile."""
        with self._changed:
            self._wait_while_alone()
            self._alone.append(worker)
            self._alone_until = time.monotonic() + self._seconds
            self._changed.wait_for(lambda: not self._inside, self._seconds)
            self._alone_until = time.monotonic() + self._seconds
        try:
            yield
        finally:
            with self._changed:
                self._alone.remove(worker)
                self._changed.notify_all()

    def _wait_while_alone(self) -> None:
        while self._alone and (left := self._alone_until - time.monotonic()) > 0:
            self._changed.wait(left)
