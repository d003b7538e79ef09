"""The sandbox's time: the machine's, and so much ahead of it as the sandbox was moved."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from billhook.clock import Clock

__all__ = ["SandboxClock"]


class SandboxClock:
    """A clock that runs, and that can be set ahead. It never goes back.

    Only the time that the service's business goes by is moved. Deliveries are signed and retried by the
    machine's time, for the receiver has no other.
    """

    def __init__(self, real: Clock) -> None:
        self.real = real
        self._ahead = timedelta(0)
        self._shown = datetime.min.replace(tzinfo=UTC)
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The sandbox's time. It stands as long as the machine's is behind what it was."""
        with self._lock:
            self._shown = max(self._shown, self.real.now() + self._ahead)
            return self._shown

    @property
    def ahead(self) -> timedelta:
        """How far it is ahead of the machine's."""
        with self._lock:
            return self._ahead

    def set_ahead(self, ahead: timedelta) -> None:
        """Be so much ahead from now on; what would turn it back is left out."""
        with self._lock:
            self._ahead = max(self._ahead, ahead)

    def set_to(self, moment: datetime) -> None:
        """Show `moment` now, unless that is over already."""
        self.set_ahead(moment - self.real.now())
