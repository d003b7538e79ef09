"""The Celery task and the worker signal handlers that billhook adds to the user's Celery app."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from billhook.errors import BillhookError, ConfigError
from billhook.logs import fields

__all__ = ["TASK", "CeleryHooks", "WorkerSide"]

logger = logging.getLogger("billhook.engines")

TASK = "billhook.handle"
"""The task's name, for `task_routes`."""


class WorkerSide(Protocol):
    """What the hooks call of the engine, in a Celery worker."""

    @property
    def display_url(self) -> str:
        """The inbox that the engine handles, without a password."""
        ...

    def check(self) -> None:
        """Raise ConfigError if the Celery app cannot be used."""
        ...

    def execute(self, delivery_id: int) -> None:
        """Call the due handlers of one delivery."""
        ...

    def start_sweeping(self) -> None:
        """Sweep in this process from now on."""
        ...

    def request_stop(self) -> None:
        """Ask the sweeping to stop soon; takes no lock."""
        ...

    def stop_sweeping(self) -> None:
        """Stop sweeping, and wait a little until it has ended."""
        ...


class CeleryHooks:
    """One for each Celery app, which holds it as `celery.billhook`; `engine` is the app's current engine."""

    def __init__(self, celery: Any) -> None:
        """Add the task to the app, and connect to the start and stop of the app's workers."""
        from celery import Task, signals

        self.engine: WorkerSide | None = None
        self._celery = celery
        # Celery's own base class: the app's may do more, and handlers have their Flask context anyway.
        # acks_late and reject_on_worker_lost: the message of a worker that dies is delivered again, at once
        # and not only by a sweep. A second call is no harm: the claim decides. typing=False: a message with
        # wrong arguments has to reach `run_task`, which refuses it without quoting it.
        celery.task(
            name=TASK,
            base=Task,
            shared=False,
            typing=False,
            serializer="json",
            ignore_result=True,
            acks_late=True,
            reject_on_worker_lost=True,
        )(self.run_task)
        signals.worker_init.connect(self.on_init)
        signals.worker_ready.connect(self.on_ready)
        signals.worker_shutting_down.connect(self.on_shutting_down)
        signals.worker_shutdown.connect(self.on_shutdown)

    def run_task(self, *args: Any, **kwargs: Any) -> None:
        """Handle the delivery with this id. It never raises: each message is acknowledged."""
        if self.engine is None:
            logger.error("received a message for a closed billhook: its delivery stays in the inbox")
        elif kwargs or len(args) != 1 or type(args[0]) is not int or not 0 < args[0] < 2**63:
            # The argument is not logged: anyone who can write to the broker may have sent it.
            logger.error("rejected a message for %s: its argument is not a delivery id", TASK)
        else:
            self._execute(self.engine, args[0])

    def _execute(self, engine: WorkerSide, delivery_id: int) -> None:
        try:
            engine.execute(delivery_id)
        # Not raised: Celery would log it as a failed task and, with acks_late, drop the message all the same.
        except BillhookError as error:
            extra = fields(delivery_id=delivery_id, cause=error)
            logger.error("delivery %d stays in the inbox: %s", delivery_id, error, extra=extra)  # noqa: TRY400
        except Exception as error:
            extra = fields(delivery_id=delivery_id, cause=error)
            logger.exception("delivery %d stays in the inbox", delivery_id, extra=extra)

    def on_init(self, sender: Any, **_: Any) -> None:
        """Check the app's configuration again: a worker starts, and has read all of it."""
        # Signals are global: a process may have several Celery apps.
        if sender.app is self._celery and self.engine is not None:
            try:
                self.engine.check()
            except ConfigError as error:
                raise SystemExit(f"Error: {error}") from None  # Celery ignores other errors of this signal

    def on_ready(self, sender: Any, **_: Any) -> None:
        """Start sweeping in the worker's main process, which takes messages from now on."""
        if sender.app is self._celery and self.engine is not None:
            self.engine.start_sweeping()

    def on_shutting_down(self, **_: Any) -> None:
        """Stop sweeping soon. Called within a signal handler, and only in a worker."""
        if self.engine is not None:
            self.engine.request_stop()

    def on_shutdown(self, **_: Any) -> None:
        """Stop sweeping: the worker's main process is about to end."""
        if self.engine is not None:
            self.engine.stop_sweeping()
