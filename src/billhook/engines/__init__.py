"""Engines: where handlers run (inline, thread, worker, Celery), and the dispatcher that they share."""

from typing import Protocol

from billhook.engines.dispatcher import Dispatcher
from billhook.engines.external import ExternalEngine
from billhook.engines.inline import InlineEngine
from billhook.engines.thread import ThreadEngine
from billhook.engines.worker import Worker

__all__ = ["Dispatcher", "Engine", "ExternalEngine", "InlineEngine", "ThreadEngine", "Worker"]


class Engine(Protocol):
    """What the app needs of an engine."""

    def start(self) -> None:
        """Start in this process."""
        ...

    def wake(self, delivery_id: int) -> None:
        """Handle a delivery that was just committed, or have it handled."""
        ...

    def stop(self) -> None:
        """Stop in this process."""
        ...
