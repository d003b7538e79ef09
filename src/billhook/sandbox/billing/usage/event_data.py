"""SQL expressions over an event's data, and groupings by them in aggregations.

The specification does not show the values of groupBy.
Source: spec, "Endpoints", POST /v2/events/aggregation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Text, case, cast, func, literal, literal_column, type_coerce

from billhook.errors import RuleBroken
from billhook.fields.strict_json import datetime_text
from billhook.sandbox.billing.usage.meters import check_property
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.storage.columns import to_microseconds
from billhook.sandbox.storage.tables.usage import event

_YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)  # a Monday
_DAY, _MICROSECOND = timedelta(days=1), timedelta(microseconds=1)
_DATA = "data."


class EventData:
    """The value under a key of `data`, by SQLite's JSON functions."""

    def __init__(self, key: str) -> None:
        # Safe to interpolate: check_property() rejects keys with quotes or backslashes.
        path = literal(f'$.data."{key}"', Text)
        self._type = func.json_type(event.c.body, path, type_=Text)
        self.value = func.json_extract(event.c.body, path)
        """The value; a number as SQLite's integer or double."""
        self.json = event.c.body.op("->", return_type=Text())(path)
        """The value as it was sent, with all its digits."""

    def text(self) -> ColumnElement[Any]:
        """Return the value as text to group by; null without one."""
        is_boolean = self._type.in_(["true", "false"])
        return case((is_boolean, self._type), (self._type != "null", cast(self.value, Text)))

    def instance(self) -> ColumnElement[Any]:
        """Return a value that is distinct for distinct scalars."""
        # The prefix keeps the text "1" apart from the number 1, and "true" from true.
        text = literal("=", Text) + cast(self.value, Text)
        is_boolean = self._type.in_(["true", "false"])
        return case((self._type == "text", text), (is_boolean, self._type), else_=self.value)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _no_names(start: datetime, end: datetime) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups events: in the database by `column`, in the response by `name`."""

    column: ColumnElement[Any]
    """An expression over the table of events that is equal for the events of one group."""
    name: Callable[[Any], str] = _text
    """Returns the group's name, from the value of `column`."""
    all: Callable[[datetime, datetime], Iterable[str]] = _no_names
    """Returns the names of the groups between two moments that exist even without events."""


def _spans(length: timedelta) -> Grouping:
    """Return the grouping by spans of one length since the year 1: hours, days, weeks from Monday."""

    def name(number: int) -> str:
        begin = _YEAR_1 + number * length
        return datetime_text(begin) if length < _DAY else begin.date().isoformat()

    def names(start: datetime, end: datetime) -> Iterable[str]:
        first, last = ((moment - _YEAR_1) // length for moment in (start, end - _MICROSECOND))
        return map(name, range(first, last + 1))

    # Counted from the year 1 no number is negative, so integer division rounds down.
    since = type_coerce(event.c.at, BigInteger) - to_microseconds(_YEAR_1)
    return Grouping(since // (length // _MICROSECOND), name, names)


def _months(start: datetime, end: datetime) -> Iterable[str]:
    # `end` is exclusive: midnight of a first belongs to the month before it.
    last = end - _MICROSECOND
    numbers = range(start.year * 12 + start.month - 1, last.year * 12 + last.month)
    return (f"{number // 12:04}-{number % 12 + 1:02}" for number in numbers)


# Rounded down, not towards zero: before 1970 the two differ.
_OF_DAY = "((event.at % 86400000000) + 86400000000) % 86400000000"
_MONTH = f"strftime('%Y-%m', (event.at - {_OF_DAY}) / 86400000000 * 86400, 'unixepoch')"


def grouping(group_by: str) -> Grouping:
    """Return the grouping of this name; rejects an unknown one."""
    known = {
        "hour": _spans(timedelta(hours=1)),
        "day": _spans(_DAY),
        "week": _spans(timedelta(weeks=1)),
        "month": Grouping(literal_column(_MONTH, Text), all=_months),
        "customer": Grouping(event.c.customer_id),
        "eventName": Grouping(event.c.name),
    }
    if group_by in known:
        return known[group_by]
    if group_by.startswith(_DATA):
        key = group_by.removeprefix(_DATA)
        try:
            check_property(key, "groupBy")
        except RuleBroken as error:
            raise invalid_request(str(error), "groupBy") from None
        return Grouping(EventData(key).text())
    raise invalid_request(
        f"groupBy must be one of {', '.join(known)}, or {_DATA}<name> for a key in the events' data",
        "groupBy",
    )
