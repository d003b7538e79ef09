"""The worker engine: the app only rings, a process of its own (`billhook worker`) runs the loop."""

from __future__ import annotations

from billhook.inbox import Inbox

__all__ = ["WorkerEngine"]


class WorkerEngine:
    """The web process's side of it. The loop itself is billhook.engines.loop.Loop."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def start(self) -> None:
        """Nothing to start here."""

    def wake(self, delivery_id: int) -> None:
        """A delivery came: ring in the workers."""
        self._inbox.bell.ring()

    def stop(self) -> None:
        """Nothing to stop here."""
