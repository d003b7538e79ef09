"""The Celery engine: handlers run in the workers of the user's own Celery app.

A message carries a delivery's id and nothing else: the inbox is the source of truth, retries are due there,
and a sweep finds the deliveries whose message was lost. Celery is imported when this engine is chosen.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from billhook.engines.celery.app import check_settings
from billhook.engines.celery.relay import Publisher, Relay
from billhook.engines.celery.sweeper import Sweeper
from billhook.engines.celery.task import TASK, CeleryHooks
from billhook.engines.dispatcher import Dispatcher
from billhook.engines.leases import lease_owner
from billhook.engines.maintenance import Maintenance, WorkerRegistration
from billhook.engines.notifications import log_paused
from billhook.engines.serial import SerialWorker
from billhook.errors import ConfigError
from billhook.inbox import Inbox, Lease
from billhook.threads import reset_in_child

__all__ = ["CeleryEngine"]

WEB_DELAY_SECONDS = 5.0
"""The sweeps of web processes publish only what those of the workers have not for so long."""
SETTLE_SECONDS = 300.0
"""How long a result is kept and retried while the inbox cannot be written."""


class CeleryEngine:
    """Both sides of it: the relay in the web processes, the task and the sweeping in the workers."""

    def __init__(
        self,
        inbox: Inbox,
        dispatcher: Dispatcher,
        celery: Any,
        *,
        lease_seconds: float,
        retention_days: float = 30.0,
        key_days: float | None = None,
    ) -> None:
        """`celery` is the user's app; nothing in it is changed before `bind`. Raises ConfigError."""
        self.celery = celery
        self.display_url = inbox.database.display_url
        self._inbox = inbox
        self._dispatcher = dispatcher
        self._clock = dispatcher.clock
        self._retention_days = retention_days
        self._key_days = key_days
        self.check()
        self._relay = Relay(
            lambda: Publisher(celery, TASK),
            lambda: Sweeper(inbox, dispatcher.clock, self._release_held),
        )
        self._lease_seconds = lease_seconds
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._isolation = Isolation(self._lease_seconds)
        self._idle: deque[SerialWorker] = deque()

    def _release_held(self) -> tuple[list[int], datetime | None]:
        return self._inbox.release_held(lease_owner(), self._dispatcher.limits, self._clock.now())

    def check(self) -> None:
        """Raise ConfigError if the Celery app's settings do not fit, or it is bound to another inbox."""
        check_settings(self.celery)
        hooks: CeleryHooks | None = getattr(self.celery, "billhook", None)
        bound = hooks.engine if hooks is not None else None
        if bound is not None and bound.display_url != self.display_url:
            raise ConfigError(
                f"the Celery app handles the deliveries of the inbox {bound.display_url} already: give each "
                "Flask app with BILLHOOK_ENGINE=celery one of its own (tests do well with "
                "BILLHOOK_ENGINE=inline)"
            )

    def bind(self) -> None:
        """Make this the engine that handles the Celery app's messages."""
        if getattr(self.celery, "billhook", None) is None:
            self.celery.billhook = CeleryHooks(self.celery)
        self.celery.billhook.engine = self

    def start(self) -> None:
        """Start the relay and its sweeping in this web process."""
        self._relay.start(WEB_DELAY_SECONDS)

    def wake(self, delivery_id: int) -> None:
        """Publish a committed delivery's id soon. Never waits: the sweeper finds what is not published."""
        # Again: this process may have been forked after `start`, and threads do not survive a fork.
        self._relay.start(WEB_DELAY_SECONDS)
        self._relay.publish(delivery_id)

    def stop(self) -> None:
        """Publish the ids that wait if that is quick, end the relay, and handle no more messages."""
        self._relay.stop()
        hooks: CeleryHooks | None = getattr(self.celery, "billhook", None)
        # Only our own: another app, as in tests, may have bound the Celery app since.
        if hooks is not None and hooks.engine is self:
            hooks.engine = None

    def execute(self, delivery_id: int) -> None:
        """Call the due handlers of one delivery, in a Celery worker. Raises InboxUnavailable.

        A handler that hangs does not hold its siblings: there is a message for each. Suspects come last, and
        each runs alone in this process.
        """
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = SerialWorker(
                self._inbox,
                self._dispatcher,
                lease_seconds=self._lease_seconds,
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
        except BaseException:
            worker.close()
            raise
        self._idle.append(worker)

    def _publish_all(self, delivery_ids: Iterable[int]) -> None:
        for delivery_id in delivery_ids:
            self._relay.publish(delivery_id)

    def start_sweeping(self) -> None:
        """Sweep in a Celery worker's main process: a retry's message is published when it is due.

        It prunes old deliveries and registers itself as a worker too, as `billhook worker` does.
        """
        # In the main process only: its pool's children come and go, and one sweep per worker is enough.
        count_handlers = self._dispatcher.count_handlers
        maintenance = Maintenance(
            self._inbox,
            retention_days=self._retention_days,
            key_days=self._key_days,
            registration=WorkerRegistration(self._inbox, lease_owner(), "celery", count_handlers),
        )
        log_paused(self._inbox, self._dispatcher.sender)
        self._relay.start(0.0, lambda: maintenance.run_if_due(self._clock.now()), maintenance.close)

    def request_stop(self) -> None:
        """Ask the relay to stop soon; takes no lock."""
        self._relay.request_stop()

    def stop_sweeping(self) -> None:
        """Stop the relay, and wait a little until it has removed this worker's registration."""
        self._relay.stop()


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
