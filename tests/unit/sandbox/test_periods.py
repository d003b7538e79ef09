"""ISO 8601 durations, and months on the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from billhook.sandbox.clock import CalendarDuration, add_months


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


WRITTEN = {
    "P30D": CalendarDuration(time=timedelta(days=30)),
    "P2W": CalendarDuration(time=timedelta(days=14)),
    "P1Y2M10DT2H30M": CalendarDuration(14, timedelta(days=10, hours=2, minutes=30)),
    "PT36H": CalendarDuration(time=timedelta(hours=36)),
    "PT0.5S": CalendarDuration(time=timedelta(milliseconds=500)),
    "PT1,25S": CalendarDuration(time=timedelta(milliseconds=1250)),
    "P0D": CalendarDuration(),
    "PT1M": CalendarDuration(time=timedelta(minutes=1)),
    "P1M": CalendarDuration(1),
}
INVALID = (
    "", "P", "PT", "P1", "1D", "-P1D", "P-1D", "+P1D", "p1d", "P1DT", "P1.5M", "P1.5D", "P1H", "PT1D",
    "P1D1M", "P1M ", " P1M", "P1M\n", "P\u0661D", "P1234567890D", "P1S", "PT1.1234567S", "P1Y2Y",
)  # fmt: skip


def test_a_duration_is_read_as_iso_8601_writes_it() -> None:
    assert {text: CalendarDuration.parse(text) for text in WRITTEN} == WRITTEN


def test_an_invalid_duration_is_refused() -> None:
    for text in INVALID:
        with pytest.raises(ValueError, match="not an ISO 8601 duration"):
            pytest.fail(f"{text!r} was read as {CalendarDuration.parse(text)}")


def test_a_duration_longer_than_the_calendar_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than the calendar"):
        CalendarDuration.parse("P999999999W")


MONTHS_LATER = [
    ("2026-01-31", 1, "2026-02-28"),
    ("2028-01-31", 1, "2028-02-29"),
    ("2028-02-29", 12, "2029-02-28"),
    ("2026-12-31", 2, "2027-02-28"),
    ("2026-03-31", -1, "2026-02-28"),
    ("2026-01-15", -13, "2024-12-15"),
]


def test_months_end_on_the_last_day_of_a_shorter_month() -> None:
    found = [add_months(at(start), months) for start, months, _ in MONTHS_LATER]

    assert found == [at(end) for *_, end in MONTHS_LATER]


def test_years_and_months_pass_before_days_and_hours() -> None:
    assert CalendarDuration.parse("P1M1DT1H").after(at("2026-01-31T12:00")) == at("2026-03-01T13:00")


def test_beyond_the_year_9999_there_is_no_calendar() -> None:
    with pytest.raises(OverflowError, match="the year 10000 is not on the calendar"):
        add_months(at("9999-12-31"), 1)
