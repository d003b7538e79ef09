"""The porter answers the doorbell: what a Celery app has of billhook, its task and its worker's signals."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from billhook.errors import BillhookError, ConfigError

if TYPE_CHECKING:
    from billhook.engines.celery import CeleryEngine

__all__ = ["TASK", "Porter"]

logger = logging.getLogger("billhook.engines")

TASK = "billhook.handle"
"""The task's name, for `task_routes`."""


class Porter:
    """One for each Celery app, held by it as `celery.billhook`; `engine` is whom it answers for."""

    def __init__(self, celery: Any) -> None:
        """Add the task to the app, and hear when a worker of that app starts and ends."""
        from celery import Task, signals

        self.engine: CeleryEngine | None = None
        self._celery = celery
        # Not of the app's own class of tasks, which may do more: handlers have their Flask context anyway.
        celery.task(
            name=TASK,
            base=Task,
            shared=False,
            typing=False,
            serializer="json",
            ignore_result=True,
            acks_late=True,
            reject_on_worker_lost=True,
        )(self.answer)
        signals.worker_init.connect(self.on_init)
        signals.worker_ready.connect(self.on_ready)
        signals.worker_shutting_down.connect(self.on_shutting_down)
        signals.worker_shutdown.connect(self.on_shutdown)

    def answer(self, *args: Any, **kwargs: Any) -> None:
        """The task: handle the delivery with this id. Whatever comes of it, the message is done with."""
        if self.engine is None:
            logger.error("a message for a billhook that is closed: its delivery waits in the inbox")
        elif kwargs or len(args) != 1 or type(args[0]) is not int or not 0 < args[0] < 2**63:
            # Anybody who can write to the broker may have sent it, so it is not repeated here.
            logger.error("a message for %s was rejected: its argument is no delivery's id", TASK)
        else:
            self._handle(self.engine, args[0])

    def _handle(self, engine: CeleryEngine, delivery_id: int) -> None:
        try:
            engine.handle(delivery_id)
        except BillhookError as error:
            logger.error("delivery %d waits in the inbox: %s", delivery_id, error)  # noqa: TRY400
        except Exception:
            logger.exception("delivery %d waits in the inbox", delivery_id)

    def on_init(self, sender: Any, **_: Any) -> None:
        """A worker begins, with its whole configuration read: look at it again."""
        if sender.app is self._celery and self.engine is not None:
            try:
                self.engine.check()
            except ConfigError as error:
                raise SystemExit(f"Error: {error}") from None  # of any lesser error Celery thinks nothing

    def on_ready(self, sender: Any, **_: Any) -> None:
        """A worker's main process takes messages from now on."""
        if sender.app is self._celery and self.engine is not None:
            self.engine.sweep()

    def on_shutting_down(self, **_: Any) -> None:
        """Called in a signal's handler, and only in a worker."""
        if self.engine is not None:
            self.engine.halt()

    def on_shutdown(self, **_: Any) -> None:
        """The worker's main process is about to end."""
        if self.engine is not None:
            self.engine.rest()
