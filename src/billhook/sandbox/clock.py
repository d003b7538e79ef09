"""The service's clock: the machine's time plus the offset by which it was moved."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from billhook.clock import Clock

__all__ = ["SandboxClock"]


class SandboxClock:
    """A running clock that can be moved ahead. It never goes back.

    Only billing goes by it. Deliveries are signed and retried by the machine's time, which is the receiver's.
    """

    def __init__(self, real: Clock) -> None:
        self.real = real
        self._ahead = timedelta(0)
        self._shown = datetime.min.replace(tzinfo=UTC)
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Return the service's time. It stands still while the machine's clock is set back."""
        with self._lock:
            # The latest time shown: jobs and tokens rely on a clock that never goes back.
            self._shown = max(self._shown, self.real.now() + self._ahead)
            return self._shown

    @property
    def ahead(self) -> timedelta:
        """The offset to the machine's time."""
        with self._lock:
            return self._ahead

    def set_ahead(self, ahead: timedelta) -> None:
        """Set the offset to the machine's time; a smaller one than the current is ignored."""
        with self._lock:
            self._ahead = max(self._ahead, ahead)

    def set_to(self, moment: datetime) -> None:
        """Set the time to `moment`; ignored if that is in the past."""
        self.set_ahead(moment - self.real.now())
