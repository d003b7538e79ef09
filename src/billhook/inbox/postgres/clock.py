"""The clock of a PostgreSQL server, as this process knows it.

Leases and due times are compared by several machines, so all of them go by the one clock that they share. It
is asked for with each new connection and then every few seconds, and counted on in between by a clock that
cannot be set: a step of this machine's own changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from billhook.clock import CLOCK_OFF_SECONDS, Clock, SystemClock, clock_off
from billhook.logs import fields

logger = logging.getLogger("billhook.inbox")

# A number, and in binary, so with parameters, if none: as text it has fewer digits by extra_float_digits.
SERVER_TIME = "SELECT CAST(extract(epoch FROM pg_catalog.clock_timestamp()) AS double precision)"
EVERY_SECONDS = 10.0
"""The time between two measurements, while there are transactions: a worker has one every 20 s at least."""
_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while the machine sleeps; elsewhere than on Linux the monotonic clock does."""
_uptime = partial(time.clock_gettime, _BOOT_TIME)


@dataclass(eq=False, repr=False)
class ServerClock:
    """The server's clock, from the first measurement on; before it, the machine's own.

    `server` names it in the log; `uptime` returns seconds and is never set.
    """

    server: str
    machine: Clock = field(default_factory=SystemClock)
    uptime: Callable[[], float] = _uptime

    def __post_init__(self) -> None:
        # The server's time when the uptime was 0.
        self._zero_at: datetime | None = None
        self._measured_at = 0.0
        self._told_seconds: float | None = None

    def now(self) -> datetime:
        """Return the server's time."""
        if self._zero_at is None:
            return self.machine.now()
        return self._zero_at + timedelta(seconds=self.uptime())

    @property
    def machine_ahead_seconds(self) -> float:
        """How far this machine's clock is ahead of the server's; negative if it is behind."""
        return (self.machine.now() - self.now()).total_seconds()

    @property
    def is_due(self) -> bool:
        """Whether the last measurement is so old that there should be another."""
        return self._zero_at is None or self.uptime() - self._measured_at >= EVERY_SECONDS

    def measure(self, ask: Callable[[], float]) -> None:
        """Compare with the server's time, which `ask` returns as seconds since 1970."""
        before = self.uptime()
        at = datetime.fromtimestamp(ask(), UTC)
        after = self.uptime()
        # The server read its clock at some moment of this time: however long the answer took, what was
        # known before stays, unless it contradicts that.
        earliest, latest = at - timedelta(seconds=after), at - timedelta(seconds=before)
        known = self._zero_at or earliest + (latest - earliest) / 2
        self._zero_at = min(max(known, earliest), latest)
        self._measured_at = after
        self._tell()

    def _tell(self) -> None:
        """Log it once when the machine's clock is off, and again when by much more or less."""
        ahead = self.machine_ahead_seconds
        off, told = clock_off(ahead), self._told_seconds
        if off is None:
            self._told_seconds = None
        elif told is None or abs(ahead - told) > CLOCK_OFF_SECONDS:
            self._told_seconds = ahead
            text = "%s, %s: due times go by the server's, the age of signatures by this machine's"
            logger.warning(text, off, self.server, extra=fields(cause="clock", duration=abs(ahead)))
