"""Spans of time on the calendar: how ISO 8601 writes them, and what a moment is when one has passed."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

__all__ = ["LAST", "Period", "months_after"]

LAST = datetime(9000, 1, 1, tzinfo=UTC)
"""The sandbox's time ends here: what is then to come has still room before the calendar's end."""

_NUMBER = "([0-9]{1,9})"
_ISO_8601 = re.compile(
    f"P(?=[0-9T])(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    f"(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:([0-9]{{1,9}}(?:[.,][0-9]{{1,6}})?)S)?)?"
)


def months_after(moment: datetime, months: int) -> datetime:
    """`moment`, so many months on; in a shorter month its last day. OverflowError beyond the year 9999.

    >>> months_after(datetime(2026, 1, 31), 1)
    datetime.datetime(2026, 2, 28, 0, 0)
    """
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError(f"the year {year} is not on the calendar")
    last_day = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last_day))


@dataclass(frozen=True, slots=True)
class Period:
    """So many months, and then so much time: a month is no fixed number of days."""

    months: int = 0
    time: timedelta = timedelta(0)

    @classmethod
    def parse(cls, text: str) -> Period:
        """Read `P1Y2M10DT2H30M`: whole numbers, but for the seconds; no sign. ValueError for the rest."""
        found = _ISO_8601.fullmatch(text)
        if found is None:
            raise ValueError("not an ISO 8601 duration, as P30D, P1M or PT36H")
        *whole, fine = found.groups(default="0")
        years, months, weeks, days, hours, minutes = map(int, whole)
        seconds = float(fine.replace(",", "."))
        try:
            time = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            raise ValueError("longer than the calendar") from None
        return cls(years * 12 + months, time)

    def after(self, moment: datetime) -> datetime:
        """When it has passed, counted from `moment`. OverflowError beyond the year 9999."""
        return months_after(moment, self.months) + self.time

    def times(self, count: int) -> Period:
        """It, `count` times. Counted from one moment, so that a 31st comes back after a short month."""
        return Period(self.months * count, self.time * count)
