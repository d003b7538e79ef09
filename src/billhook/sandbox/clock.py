"""The service's clock, the machine's time plus the offset by which it was moved; and calendar durations.

Durations are parsed from ISO 8601; months are added to a datetime by the calendar.
"""

from __future__ import annotations

import calendar
import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from billhook.clock import Clock, parse_duration

MAX_TIME = datetime(9000, 1, 1, tzinfo=UTC)
"""The clock cannot be moved beyond this time: jobs are scheduled later than it, before the year 9999."""
_NUMBER = "([0-9]{1,9})"
# The lookaheads refuse "P" and "T" with nothing after them.
_ISO_8601 = re.compile(
    f"P(?=[0-9T])(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    f"(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:([0-9]{{1,9}}(?:[.,][0-9]{{1,6}})?)S)?)?"
)


class SandboxClock:
    """A running clock that can be moved ahead. It never goes back.

    Only billing uses it. Deliveries are signed and retried by the machine's clock, as receivers expect.
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


def add_months(moment: datetime, months: int) -> datetime:
    """Return `moment` plus `months`; in a shorter month its last day. OverflowError beyond the year 9999.

    >>> add_months(datetime(2026, 1, 31), 1)
    datetime.datetime(2026, 2, 28, 0, 0)
    """
    # Counted from January of the year 0, so that divmod yields a month of 0 to 11.
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError(f"the year {year} is not on the calendar")
    last_day = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last_day))


@dataclass(frozen=True, slots=True)
class CalendarDuration:
    """A number of months plus a fixed time, since a month has no fixed number of days."""

    months: int = 0
    time: timedelta = timedelta(0)

    @classmethod
    def parse(cls, text: str) -> CalendarDuration:
        """Parse ISO 8601 such as `P1Y2M10DT2H30M`, where only seconds may have decimals; or such as `7d`.

        ValueError for any other text.
        """
        with suppress(ValueError):
            return cls(time=parse_duration(text))
        found = _ISO_8601.fullmatch(text)
        if found is None:
            raise ValueError("not an ISO 8601 duration, as P30D, P1M or PT36H, and not 7d or the like")
        *whole, fine = found.groups(default="0")
        years, months, weeks, days, hours, minutes = map(int, whole)
        # At most six decimals, so the float is exact to the microsecond.
        seconds = float(fine.replace(",", "."))
        try:
            time = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            raise ValueError("longer than the calendar") from None
        return cls(years * 12 + months, time)

    def after(self, moment: datetime) -> datetime:
        """Return `moment` plus this duration. OverflowError beyond the year 9999."""
        # Months first: adding days first could change the month that they are counted from.
        return add_months(moment, self.months) + self.time

    def times(self, count: int) -> CalendarDuration:
        """Return this duration `count` times.

        Add the multiple to one start, so that a 31st comes back after a short month.
        """
        return CalendarDuration(self.months * count, self.time * count)
