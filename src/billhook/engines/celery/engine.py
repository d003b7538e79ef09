"""The Celery engine: handlers run in the workers of the user's own Celery app.

Celery is imported when this engine is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from billhook.basics.engine_kinds import CELERY
from billhook.engines.celery.app import check_settings, find_celery
from billhook.engines.celery.broker import CeleryBroker
from billhook.engines.celery.consumers import ConsumerWatch
from billhook.engines.messages.broker import TASK
from billhook.engines.messages.engine import MessageEngine, handle_message
from billhook.errors import ConfigError
from billhook.settings import Settings


@dataclass(eq=False, repr=False)
class CeleryEngine(MessageEngine):
    """Binds the task of the user's Celery app, and sweeps in the main process of each of its workers."""

    kind = CELERY
    celery: Any
    """The user's app; nothing in it is changed before `bind`."""

    def __post_init__(self) -> None:
        self.display_url = self.inbox.database.display_url
        self.check()
        super().__post_init__()

    @classmethod
    def parts(cls, settings: Settings, extensions: Mapping[str, Any]) -> dict[str, Any]:
        """Return the Celery app."""
        return {"celery": find_celery(extensions, settings.celery_app)}

    def broker_factory(self) -> Callable[[], CeleryBroker]:
        """Return what makes a broker of the Celery app."""
        return partial(CeleryBroker, self.celery)

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

    def bind(self, extensions: dict[str, Any]) -> None:
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
        extensions.setdefault(self.kind.extension, self.celery)

    def start(self) -> None:
        """Start the publisher in this web process; after `stop`, handle messages again."""
        if getattr(self.celery, "billhook", self) is None:
            self.celery.billhook = self
        super().start()

    def stop(self) -> None:
        """Publish the ids that wait if that is quick, end the publisher, and handle no more messages."""
        super().stop()
        # Only our own: another app, as in tests, may have bound the Celery app since.
        if self._is_bound():
            self.celery.billhook = None

    def _is_bound(self) -> bool:
        return getattr(self.celery, "billhook", None) is self

    def _on_init(self, sender: Any, **_: Any) -> None:
        """Check the app's configuration again: a worker starts, and has read all of it."""
        # Signals are global: a process may have several Celery apps.
        if sender.app is self.celery and self._is_bound():
            try:
                self.check()
            except ConfigError as error:
                raise SystemExit(f"Error: {error}") from None  # Celery ignores other errors of this signal
            self.register()

    def _on_ready(self, sender: Any, **_: Any) -> None:
        """Sweep from now on."""
        if not (sender.app is self.celery and self._is_bound()):
            return
        # In the main process only: its pool's children come and go, and one sweep per worker is enough.
        consumers = ConsumerWatch(CeleryBroker(self.celery), self.inbox, partial(_consumed_queues, sender))
        self.start_sweeping(lambda now, unclaimed: consumers.look(now, is_unclaimed=unclaimed))

    def _on_shutting_down(self, **_: Any) -> None:
        """Stop sweeping soon. Called within a signal handler, and only in a worker."""
        if self._is_bound():
            self._publisher.request_stop()

    def _on_shutdown(self, **_: Any) -> None:
        """Stop sweeping, and wait a little until this worker's registration is removed."""
        if self._is_bound():
            self._publisher.stop()


def _consumed_queues(consumer: Any) -> set[str] | None:
    """Return the queues that a worker's consumer has now; None while it is not connected."""
    tasks = getattr(consumer, "task_consumer", None)
    return None if tasks is None else {queue.name for queue in tasks.queues}


def _add_task(celery: Any) -> None:
    """Add the task, which calls the engine that the Celery app is bound to."""
    from celery import Task

    def run(*args: Any, **kwargs: Any) -> None:
        handle_message(celery.billhook, args, kwargs)

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
