"""The worker engine: the app only rings, a process of its own (`billhook worker`) runs the loop."""

from __future__ import annotations

__all__ = ["WorkerEngine"]


class WorkerEngine:
    """The web process's side of it. The loop itself is billhook.engines.loop.Loop."""

    def start(self) -> None:
        """Nothing to start here."""

    def wake(self, delivery_id: int) -> None:
        """Nothing to do: the inbox has rung its bell, and the workers hear it."""

    def stop(self) -> None:
        """Nothing to stop here."""
