"""The range of time that charts cover: an hour by minutes, 24 hours or 30 days, and no more than has data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from flask import request

from billhook.dashboard.context import DashboardContext
from billhook.inbox.overview import PeriodFigures, read_periods
from billhook.pages.charts import Bars, Series, bar_chart

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


class Range(NamedTuple):
    """A range of time: `number` steps, the last one under way; `label` is the format of their times."""

    text: str
    step: timedelta
    number: int
    label: str

    def read(self, context: DashboardContext, handlers: Collection[str] | None = None) -> list[PeriodFigures]:
        """Return its periods; those before the first with data are left out, but for a quarter of all."""
        now = context.now
        whole = {"second": 0, "microsecond": 0}
        whole |= {"minute": 0} if self.step >= HOUR else {}
        whole |= {"hour": 0} if self.step >= DAY else {}
        until = now.replace(**whole) + self.step  # type: ignore[arg-type]
        periods = read_periods(
            context.inbox, until - self.number * self.step, until, self.step, handlers=handlers
        )
        empty = next((at for at, one in enumerate(periods) if one.counted), self.number)
        return periods[min(empty, self.number - self.number // 4) :]


RANGES = {
    "1h": Range("last hour", MINUTE, 60, "%H:%M"),
    "24h": Range("24 hours", HOUR, 24, "%H:%M"),
    "30d": Range("30 days", DAY, 30, "%m-%d"),
}


def read_range(
    context: DashboardContext, handlers: Collection[str] | None = None
) -> tuple[str, list[PeriodFigures]]:
    """Return the name of the range in the URL, and its periods. The default fits the data.

    It is the last hour if that has all there is, and else 24 hours.
    """
    name = request.args.get("range", "")
    if name in RANGES:
        return name, RANGES[name].read(context, handlers)
    periods = RANGES["24h"].read(context, handlers)
    if not any(one.counted for one in periods[:-2]):
        minutes = RANGES["1h"].read(context, handlers)
        if any(_sum(minutes)) and _sum(minutes) == _sum(periods):  # nothing is older, or without a row
            return "1h", minutes
    return "24h", periods


def _sum(periods: Sequence[PeriodFigures]) -> Counter[str]:
    return sum((one.counted for one in periods), Counter[str]())


def attempts_chart(name: str, periods: Sequence[PeriodFigures]) -> Bars:
    """Return the chart of attempts of handlers by their result."""
    tones = {"succeeded": "good", "failed": "warn", "dead": "bad"}
    return stacked_chart("Attempts of handlers", tones, name, periods, [one.counted for one in periods])


def stacked_chart(
    title: str,
    tones: Mapping[str, str],
    name: str,
    periods: Sequence[PeriodFigures],
    numbers: Sequence[Counter[str]],
) -> Bars:
    """Return a chart with a bar for each period of a range, and a part of it for each name with a tone."""
    rows = [
        (f"{period.at:{RANGES[name].label}}", [each[part] for part in tones])
        for period, each in zip(periods, numbers, strict=True)
    ]
    return bar_chart(title, [*map(Series._make, tones.items())], rows)
