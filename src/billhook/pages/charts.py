"""The geometry of charts: from numbers to rectangles and positions, which the macros draw as SVG.

Widths are percentages, so that a chart fills the width that it is given; heights are pixels. Each chart has a
summary in words, and its numbers, for those who do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from billhook.clock import format_duration
from billhook.pages.text import format_number

_GAP = 0.22
"""The part of a bar's place that stays empty."""
_SHORTEST = 2.0
"""Pixels: one among thousands is still seen."""
_TICK_SECONDS = (1, 10, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
_EDGE = 2.0
"""Percent that marks keep from the sides of a lane."""
_ROUND = (1, 1.2, 1.6, 2, 2.4, 4, 6, 8, 10)
"""Ends of an axis, times a power of ten; half of each but the first is as round."""
_ROUND_SECONDS = (60, 120, 240, 600, 1_200, 3_600, 2 * 3_600, 4 * 3_600, 12 * 3_600, 86_400, 7 * 86_400)


class Rectangle(NamedTuple):
    """A part of a bar: x and width in percent, y and height in pixels; `tone` is its colour's name."""

    x: float
    y: float
    width: float
    height: float
    tone: str


class Series(NamedTuple):
    """One kind of number in a chart: its name, and a tone, which the style sheet has a colour for."""

    name: str
    tone: str


@dataclass(frozen=True, slots=True)
class Bars:
    """A chart of stacked bars, ready to be drawn: `rows` are the labels with the numbers of each series."""

    title: str
    series: Sequence[Series]
    rows: Sequence[tuple[str, Sequence[float]]]
    height: int
    columns: Sequence[tuple[str, Sequence[Rectangle]]]
    highest: float
    top: float
    """The end of its axis: a round number that is not below the highest."""
    overlaid: bool
    show: Callable[[float], str]
    unit: str = ""
    """In which time a bar counts: `an hour (UTC)`."""

    @property
    def scale(self) -> list[str]:
        """The texts of its axis: the end, the middle where that is as round, and 0."""
        has_middle = self.top != 1
        return [self.show(self.top), self.show(self.top / 2) if has_middle else "", "0"]

    @property
    def ticks(self) -> list[str]:
        """The labels of the first bar, of the one in the middle, and of the last."""
        labels = [label for label, _ in self.rows]
        return [labels[0], labels[len(labels) // 2], labels[-1]] if len(labels) > 2 else labels

    @property
    def totals(self) -> list[tuple[Series, float]]:
        """Each series with its sum; of bars before one another, with its highest value."""
        reduce = max if self.overlaid else sum
        return [
            (one, reduce([values[n] for _, values in self.rows] or [0])) for n, one in enumerate(self.series)
        ]

    @property
    def summary(self) -> str:
        """What it shows, in words."""
        if not self.highest:
            return f"{self.title}: none"
        label = max(self.rows, key=lambda row: max(row[1]) if self.overlaid else sum(row[1]))[0]
        highest = f"the highest bar is {self.show(self.highest)}, at {label}"
        return f"{self.title}: {_listed(self.totals, self.show)}; {highest}"


def bar_chart(
    title: str,
    series: Sequence[Series],
    rows: Sequence[tuple[str, Sequence[float]]],
    height: int = 96,
    *,
    overlaid: bool = False,
    show: Callable[[float], str] = format_number,
    unit: str = "",
) -> Bars:
    """Return a chart with a bar for each row; a row is its label and a number for each series.

    The parts of a bar are stacked, or `overlaid`: each from the ground, the later before the earlier. `show`
    writes a number, of a `unit`; seconds are written by `format_duration`.
    """
    highest = max(((max if overlaid else sum)(values) for _, values in rows), default=0)
    top = end_of_axis(highest, is_time=show is format_duration)
    place = 100 / max(1, len(rows))
    columns = []
    for position, (label, values) in enumerate(rows):
        parts = [(one, number) for one, number in zip(series, values, strict=True) if number]
        x, width = place * (position + _GAP / 2), place * (1 - _GAP)
        stacks = [[part] for part in parts] if overlaid else [parts]
        drawn = [each for stack in stacks for each in _stack(stack, x, width, height, top)]
        columns.append((f"{label}: {_listed(parts, show) or 'none'}", drawn))
    return Bars(title, series, rows, height, columns, highest, top, overlaid, show, unit)


def end_of_axis(highest: float, *, is_time: bool = False) -> float:
    """Return the round number at which an axis of this highest number ends; 1 for none."""
    if highest <= 0:
        return 1
    if is_time and highest > _ROUND_SECONDS[0]:
        return next((one for one in _ROUND_SECONDS if one >= highest), highest)
    power = 10.0 ** math.floor(math.log10(highest))
    # Rounded: 3 * 0.1 is a little more than 0.3.
    ends = (round(each * power, 9) for each in _ROUND)
    return next(end for end in ends if end >= round(highest, 9))


def _listed(parts: Iterable[tuple[Series, float]], show: Callable[[float], str]) -> str:
    return ", ".join(f"{one.name} {show(number)}" for one, number in parts)


def _stack(
    parts: Iterable[tuple[Series, float]], x: float, width: float, height: int, highest: float
) -> list[Rectangle]:
    """Draw numbers on one another, from the bottom."""
    y, drawn = float(height), []
    for one, number in parts:
        if number > 0:
            tall = max(_SHORTEST, height * number / highest)
            y = max(0.0, y - tall)
            drawn.append(Rectangle(_r(x), _r(y), _r(width), _r(tall), one.tone))
    return drawn


class Sparkline(NamedTuple):
    """A small chart without axes, beside a number; `summary` says what it shows."""

    columns: Sequence[Rectangle]
    height: int
    summary: str


def sparkline(name: str, values: Sequence[float], tone: str = "accent", height: int = 20) -> Sparkline:
    """Return a small chart with a bar for each number, the oldest first."""
    highest, place = max(values, default=0), 100 / max(1, len(values))
    columns: list[Rectangle] = []
    for position, number in enumerate(values):
        columns += _stack([(Series(name, tone), number)], position * place, place * 0.8, height, highest)
    listed = ", ".join(map(format_number, values)) if any(values) else "none"
    return Sparkline(columns, height, f"{name}: {listed}")


def level(parts: Sequence[tuple[Series, int]], highest: int, height: int = 12) -> Sparkline:
    """Return one lying bar of these numbers, as long as their sum is of the highest."""
    x, columns = 0.0, []
    for one, number in parts:
        if number > 0:
            width = 100 * number / max(1, highest)
            columns.append(Rectangle(_r(x), 0.0, _r(width), height, one.tone))
            x += width
    listed = [(one, number) for one, number in parts if number]
    return Sparkline(columns, height, _listed(listed, format_number) or "none")


class Mark(NamedTuple):
    """Something at a moment: `text` says what; `open` is drawn as a ring, for what is still to come."""

    at: datetime
    tone: str
    text: str
    open: bool = False


class Lane(NamedTuple):
    """A row of marks over time."""

    name: str
    marks: Sequence[Mark]


class LaneChart(NamedTuple):
    """Lanes over one axis of time, ready to be drawn; `ticks` are positions in percent with their texts."""

    lanes: Sequence[Lane]
    ticks: Sequence[tuple[float, str]]
    position: Callable[[datetime], float]


def lane_chart(start: datetime, lanes: Sequence[Lane]) -> LaneChart:
    """Return lanes over the time since `start`, on a logarithmic scale.

    The first attempts of a handler are milliseconds apart, and its last ones hours: both are to be seen.
    """
    seconds = [(mark.at - start).total_seconds() for lane in lanes for mark in lane.marks]
    span = max(1.0, *seconds) if seconds else 1.0
    scale = (100 - 2 * _EDGE) / math.log1p(span)

    def place(passed: float) -> float:
        return _r(_EDGE + scale * math.log1p(max(0.0, passed)))

    def position(moment: datetime) -> float:
        return place((moment - start).total_seconds())

    ticks = [(place(0), "0")]
    for passed in _TICK_SECONDS:
        if passed <= span and place(passed) - ticks[-1][0] >= 12:  # or the texts would touch
            ticks.append((place(passed), format_duration(passed)))
    return LaneChart(lanes, ticks, position)


def _r(number: float) -> float:
    return round(number, 2)
