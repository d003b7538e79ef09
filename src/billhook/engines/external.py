"""The worker engine in a web process: it does nothing, as `billhook worker` runs the handlers."""

from __future__ import annotations


class ExternalEngine:
    """Does nothing in this process: each commit to the inbox notifies the workers by itself."""

    def start(self) -> None:
        """Do nothing: `billhook worker` is started on its own."""

    def wake(self, delivery_id: int) -> None:
        """Do nothing: the inbox has notified the workers."""

    def stop(self) -> None:
        """Do nothing: `billhook worker` is stopped on its own."""
