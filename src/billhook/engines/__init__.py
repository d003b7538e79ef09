"""Where inbox and dispatch meet: the loop that handles what was stored, and the places it may run."""

from typing import Protocol

from billhook.engines.cycle import Cycle
from billhook.engines.inline import InlineEngine
from billhook.engines.loop import Loop
from billhook.engines.thread import ThreadEngine
from billhook.engines.worker import WorkerEngine

__all__ = ["Cycle", "Engine", "InlineEngine", "Loop", "ThreadEngine", "WorkerEngine"]


class Engine(Protocol):
    """What the app needs of an engine."""

    def start(self) -> None:
        """Begin in this process."""
        ...

    def wake(self, delivery_id: int) -> None:
        """A delivery was committed."""
        ...

    def stop(self) -> None:
        """End in this process."""
        ...
