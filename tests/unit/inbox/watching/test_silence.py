"""When a type counts as silent, by the hours in which it came."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from billhook.inbox.watching.silence import longest_gap

NOW = datetime(2026, 3, 31, 18, 30, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HOURS = [NOW.replace(minute=0) - number * HOUR for number in range(60 * 24)]


def until(last_hours_ago, came=lambda _: True, since_days=30):
    """The hours in which a type came, of so many days, the last so many hours ago."""
    first, last = NOW - since_days * DAY, NOW - last_hours_ago * HOUR
    return [hour for hour in HOURS if first <= hour <= last and came(hour)]


def working(hour):
    return hour.weekday() < 5 and 8 <= hour.hour < 18


HISTORIES = {
    "hourly for 30 days": (until(6), 2 * HOUR),
    "by day, with pauses at night": (until(0.5, lambda hour: 8 <= hour.hour < 20), 14 * HOUR),
    "on working days": (until(0, working), 64 * HOUR),
    "5,000 in a minute 29 days ago and again two days ago": ([NOW - 29 * DAY, NOW - 2 * DAY], None),
    "50,000 at once in an inbox an hour old": ([NOW - HOUR], None),
    "a first run of 30 hours": (until(24, since_days=2), None),
    "hourly for six and a half days": (until(0, since_days=6.5), None),
    "four gaps": ([NOW - number * 5 * DAY for number in range(1, 6)], None),
    "five gaps": ([NOW - number * 5 * DAY for number in range(1, 7)], 5 * DAY + HOUR),
    # The run of three days and the one of the month before: the gap between them counts, although the hours
    # of the older one are known by day alone.
    "month ends": (
        [hour for hour in HOURS if 26 * DAY < NOW - hour < 29 * DAY or 56 * DAY < NOW - hour < 59 * DAY],
        26 * DAY + 19 * HOUR,
    ),
    "month ends, the first": ([hour for hour in HOURS if 26 * DAY < NOW - hour < 29 * DAY], None),
}


@pytest.mark.parametrize("history", HISTORIES)
def test_the_longest_gap_is_what_the_type_really_had(history):
    hours, longest = HISTORIES[history]

    assert longest_gap(hours, max(hours), NOW) == longest


def test_the_order_of_the_hours_does_not_matter():
    hours, longest = HISTORIES["on working days"]

    assert longest_gap(hours[::-1], max(hours), NOW) == longest_gap(hours, max(hours), NOW) == longest
