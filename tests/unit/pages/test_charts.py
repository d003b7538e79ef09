"""Charts: where bars and marks are drawn, and what they say in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from billhook.clock import format_duration
from billhook.pages.charts import Lane, Mark, Series, bar_chart, end_of_axis, lane_chart, level, sparkline

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
SERIES = [Series("accepted", "good"), Series("refused", "bad")]


def test_bars_are_stacked_from_the_bottom_and_share_the_height():
    chart = bar_chart("Deliveries", SERIES, [("11:00", (50, 50)), ("12:00", (25, 0))], height=100)

    (_, (good, bad)), (_, (other,)) = chart.columns

    assert (good.y, good.height, bad.y, bad.height) == (50, 50, 0, 50)
    assert (other.y, other.height) == (75, 25)
    assert 0 < good.x < good.x + good.width < 50 < other.x < other.x + other.width < 100


def test_a_single_one_among_thousands_is_still_seen():
    chart = bar_chart("Deliveries", SERIES, [("11:00", (100_000, 1))], height=100)

    ((_, parts),) = chart.columns

    assert [part.height for part in parts] == [pytest.approx(83.3, abs=0.1), 2]
    assert all(part.y >= 0 for part in parts)


@pytest.mark.parametrize(
    ("rows", "summary"),
    [
        ([], "Deliveries: none"),
        ([("11:00", (0, 0))], "Deliveries: none"),
        (
            [("11:00", (3, 0)), ("12:00", (1000, 4))],
            "Deliveries: accepted 1,003, refused 4; the highest bar is 1,004, at 12:00",
        ),
    ],
)
def test_a_chart_says_in_words_what_it_shows(rows, summary):
    assert bar_chart("Deliveries", SERIES, rows).summary == summary


def test_bars_before_one_another_stand_on_the_ground_and_are_not_added():
    rows = [("11:00", (8.0, 2.0)), ("12:00", (4.0, 0.0))]
    chart = bar_chart(
        "Duration",
        [Series("p95", "quiet"), Series("p50", "accent")],
        rows,
        100,
        overlaid=True,
        show=format_duration,
    )

    (_, (p95, p50)), _ = chart.columns

    assert (p95.y, p95.height, p50.y, p50.height) == (0, 100, 75, 25)
    assert chart.summary == "Duration: p95 8 s, p50 2 s; the highest bar is 8 s, at 11:00"


def test_a_sparkline_has_a_bar_for_each_number_but_nought():
    chart = sparkline("last hours", [0, 4, 2], height=20)

    assert [(round(part.x), part.height) for part in chart.columns] == [(33, 20), (67, 10)]
    assert chart.summary == "last hours: 0, 4, 2"
    assert sparkline("last hours", [0, 0]).summary == "last hours: none"


def test_attempts_milliseconds_and_hours_apart_have_places_of_their_own():
    moments = [NOON + timedelta(seconds=seconds) for seconds in (0.5, 10, 70, 3_600, 17 * 3_600)]
    chart = lane_chart(NOON, [Lane("book", tuple(Mark(each, "bad", "failed") for each in moments))])

    places = [chart.position(each) for each in moments]

    assert places == sorted(places)
    assert all(after - before > 5 for before, after in pairwise(places))
    assert places[0] >= 2
    assert places[-1] == 98
    assert [text for _, text in chart.ticks][:3] == ["0", "10 s", "1 min"]


@pytest.mark.parametrize("lanes", [[], [Lane("book", ())], [Lane("book", (Mark(NOON, "good", "done"),))]])
def test_lanes_without_time_between_their_marks_can_be_drawn(lanes):
    chart = lane_chart(NOON, lanes)

    assert chart.position(NOON - timedelta(seconds=1)) == chart.position(NOON) == 2


def test_a_level_is_as_long_as_its_numbers_are_of_the_highest():
    parts = [
        (Series("waiting", "quiet"), 30),
        (Series("running", "accent"), 10),
        (Series("paused", "warn"), 0),
    ]

    bar = level(parts, 80)

    assert [(one.x, one.width, one.tone) for one in bar.columns] == [
        (0, 37.5, "quiet"),
        (37.5, 12.5, "accent"),
    ]
    assert bar.summary == "waiting 30, running 10"
    assert level([], 0).summary == "none"


@pytest.mark.parametrize(
    ("highest", "is_time", "end"),
    [
        *(
            (0, False, 1),
            (1, False, 1),
            (2, False, 2),
            (3, False, 4),
            (19, False, 20),
            (41, False, 60),
            (100_001, False, 120_000),
        ),
        *((999, False, 1000), (0.0009, True, 0.001), (0.3, True, 0.4), (59, True, 60), (61, True, 120)),
        *((4_000, True, 7_200), (10_000_000, True, 10_000_000)),
    ],
)
def test_an_axis_ends_at_a_round_number(highest, is_time, end):
    assert end_of_axis(highest, is_time=is_time) == pytest.approx(end)


def test_a_chart_has_numbers_on_both_axes():
    rows = [(f"01-15 {hour:02}:00", (hour,)) for hour in range(20)]

    chart = bar_chart("Received", [Series("accepted", "good")], rows, unit="an hour (UTC)")
    short = bar_chart("Duration", [Series("p50", "good")], [("now", (1.0,))], show=format_duration)

    assert chart.scale == ["20", "10", "0"]
    assert chart.ticks == ["01-15 00:00", "01-15 10:00", "01-15 19:00"]
    assert (short.scale, short.ticks) == (["1 s", "", "0"], ["now"])
