"""SQL expressions over an event's data, and groupings by them in aggregations.

The specification does not show the values of groupBy.
Source: spec, "Endpoints", POST /v2/events/aggregation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
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
_HOUR, _DAY, _WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)
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
        """The value as text to group by; null without one."""
        is_boolean = self._type.in_(["true", "false"])
        return case((is_boolean, self._type), (self._type != "null", cast(self.value, Text)))

    def instance(self) -> ColumnElement[Any]:
        """A value that is distinct for distinct scalars."""
        # The prefix keeps the text "1" apart from the number 1, and "true" from true.
        text = literal("=", Text) + cast(self.value, Text)
        is_boolean = self._type.in_(["true", "false"])
        return case((self._type == "text", text), (is_boolean, self._type), else_=self.value)


class Grouping(ABC):
    """Groups events: in the database by `column`, in the response by `name`."""

    @abstractmethod
    def column(self) -> ColumnElement[Any]:
        """Return an expression over the table of events that is equal for the events of one group."""

    def name(self, value: Any) -> str:
        """Return the group's name, from the value of `column`; empty without a value."""
        return "" if value is None else str(value)

    def all(self, start: datetime, end: datetime) -> Iterator[str]:
        """Yield the names of the groups from `start` to before `end` that exist even without events."""
        return iter(())


class _FixedSpan(Grouping):
    """Spans of one length since the year 1: hours, days, weeks from Monday. Named by their start."""

    def __init__(self, length: timedelta) -> None:
        self._length = length

    def column(self) -> ColumnElement[Any]:
        # Counted from the year 1 no number is negative, so integer division rounds down.
        since = type_coerce(event.c.at, BigInteger) - to_microseconds(_YEAR_1)
        return since // (self._length // timedelta(microseconds=1))

    def name(self, value: Any) -> str:
        begin = _YEAR_1 + value * self._length
        return datetime_text(begin) if self._length < _DAY else begin.date().isoformat()

    def all(self, start: datetime, end: datetime) -> Iterator[str]:
        if end <= start:
            return iter(())
        last = (end - timedelta(microseconds=1) - _YEAR_1) // self._length
        return (self.name(number) for number in range((start - _YEAR_1) // self._length, last + 1))


class _Month(Grouping):
    """Calendar months in UTC."""

    def column(self) -> ColumnElement[Any]:
        text = "strftime('%Y-%m', event.at / 86400000000 * 86400, 'unixepoch')"
        # Rounded down, not towards zero: before 1970 the two differ.
        return literal_column(text.replace("event.at", f"(event.at - {_OF_DAY})"), Text)

    def all(self, start: datetime, end: datetime) -> Iterator[str]:
        if end <= start:
            return iter(())
        # `end` is exclusive: midnight of a first belongs to the month before it.
        last = end - timedelta(microseconds=1)
        numbers = range(start.year * 12 + start.month - 1, last.year * 12 + last.month)
        return (f"{number // 12:04}-{number % 12 + 1:02}" for number in numbers)


_OF_DAY = "((event.at % 86400000000) + 86400000000) % 86400000000"


class _Column(Grouping):
    """A column of the table: customers, and names of events."""

    def __init__(self, column: ColumnElement[Any]) -> None:
        self._column = column

    def column(self) -> ColumnElement[Any]:
        return self._column


class _Data(Grouping):
    """The value under a key of the event's data, as text."""

    def __init__(self, key: str) -> None:
        self._key = key

    def column(self) -> ColumnElement[Any]:
        return EventData(self._key).text()


def grouping(group_by: str) -> Grouping:
    """Return the grouping of this name; rejects an unknown one."""
    known: dict[str, Grouping] = {
        "hour": _FixedSpan(_HOUR),
        "day": _FixedSpan(_DAY),
        "week": _FixedSpan(_WEEK),
        "month": _Month(),
        "customer": _Column(event.c.customer_id),
        "eventName": _Column(event.c.name),
    }
    if group_by in known:
        return known[group_by]
    if group_by.startswith(_DATA):
        key = group_by.removeprefix(_DATA)
        try:
            check_property(key, "groupBy")
        except RuleBroken as error:
            raise invalid_request(str(error), "groupBy") from None
        return _Data(key)
    raise invalid_request(
        f"groupBy must be one of {', '.join(known)}, or {_DATA}<name> for a key in the events' data",
        "groupBy",
    )
