"""Calendar durations: parsing ISO 8601 and adding months to a datetime."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

__all__ = ["MAX_TIME", "CalendarDuration", "add_months"]

MAX_TIME = datetime(9000, 1, 1, tzinfo=UTC)
"""The clock cannot be moved beyond; it leaves room for jobs scheduled later, before the year 9999."""

_NUMBER = "([0-9]{1,9})"
# The lookaheads refuse "P" and "T" with nothing after them.
_ISO_8601 = re.compile(
    f"P(?=[0-9T])(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    f"(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:([0-9]{{1,9}}(?:[.,][0-9]{{1,6}})?)S)?)?"
)


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
        """Parse ISO 8601 such as `P1Y2M10DT2H30M`; only seconds may have decimals. ValueError otherwise."""
        found = _ISO_8601.fullmatch(text)
        if found is None:
            raise ValueError("not an ISO 8601 duration, as P30D, P1M or PT36H")
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
