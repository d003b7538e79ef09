"""What usage can be grouped by. The specification does not show the values of groupBy; these are ours.

Source: spec, "Endpoints", POST /v2/events/aggregation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Text, literal_column, type_coerce

from billhook.errors import RuleBroken
from billhook.sandbox.billing.event_sql import event_data
from billhook.sandbox.billing.meter_fields import check_property
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.tables.usage import event
from billhook.sandbox.storage.types import microseconds
from billhook.wire.strict_json import moment_text

__all__ = ["Grouping", "grouping"]

_YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)  # a Monday
_HOUR, _DAY, _WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)
_DATA = "data."


class Grouping(ABC):
    """A way to put events into groups: in the database by `column`, for the answer by `name`."""

    @abstractmethod
    def column(self) -> ColumnElement[Any]:
        """An expression over the table of events, equal for the events of one group."""

    def name(self, value: Any) -> str:
        """The group's text, from what `column` gave; without any value there it is empty."""
        return "" if value is None else str(value)

    def all(self, start: datetime, end: datetime) -> Iterator[str]:
        """The groups from `start` to before `end` that there are whether something happened or not."""
        return iter(())


class _Span(Grouping):
    """Spans of one length since the year 1: an hour, a day, a week from Monday on. Named by their begin."""

    def __init__(self, length: timedelta) -> None:
        self._length = length

    def column(self) -> ColumnElement[Any]:
        # Since the year 1 no number is below 0, and so division cuts off alike on both databases. The
        # numbers stand in the statement: PostgreSQL takes two expressions with parameters for different.
        since = type_coerce(event.c.at, BigInteger) + _plain(-microseconds(_YEAR_1))
        return since // _plain(self._length // timedelta(microseconds=1))

    def name(self, value: Any) -> str:
        begin = _YEAR_1 + value * self._length
        return moment_text(begin) if self._length < _DAY else begin.date().isoformat()

    def all(self, start: datetime, end: datetime) -> Iterator[str]:
        if end <= start:
            return iter(())
        last = (end - timedelta(microseconds=1) - _YEAR_1) // self._length
        return (self.name(number) for number in range((start - _YEAR_1) // self._length, last + 1))


class _Month(Grouping):
    """Months of the calendar, in UTC."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect

    def column(self) -> ColumnElement[Any]:
        if self._dialect == "postgresql":
            text = "to_char(timestamp '1970-01-01' + event.at / 86400000000 * interval '1 day', 'YYYY-MM')"
        else:
            text = "strftime('%Y-%m', event.at / 86400000000 * 86400, 'unixepoch')"
        # Floor, not cut off: before 1970 the two differ.
        return literal_column(text.replace("event.at", f"(event.at - {_OF_DAY})"), Text)

    def all(self, start: datetime, end: datetime) -> Iterator[str]:
        if end <= start:
            return iter(())
        last = end - timedelta(microseconds=1)
        numbers = range(start.year * 12 + start.month - 1, last.year * 12 + last.month)
        return (f"{number // 12:04}-{number % 12 + 1:02}" for number in numbers)


_OF_DAY = "((event.at % 86400000000) + 86400000000) % 86400000000"


class _Column(Grouping):
    """Customers, and names of events."""

    def __init__(self, column: ColumnElement[Any]) -> None:
        self._column = column

    def column(self) -> ColumnElement[Any]:
        return self._column


class _Data(Grouping):
    """What is under a key of the event's data, as text."""

    def __init__(self, key: str, dialect: str) -> None:
        self._key, self._dialect = key, dialect

    def column(self) -> ColumnElement[Any]:
        return event_data(self._dialect)(self._key).text()


def grouping(group_by: str, dialect: str) -> Grouping:
    """The grouping of this name; refused if there is none."""
    known: dict[str, Grouping] = {
        "hour": _Span(_HOUR),
        "day": _Span(_DAY),
        "week": _Span(_WEEK),
        "month": _Month(dialect),
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
        return _Data(key, dialect)
    raise invalid_request(
        f"groupBy is one of {', '.join(known)}, or {_DATA}<name> for a key in the events' data", "groupBy"
    )


def _plain(number: int) -> ColumnElement[int]:
    return literal_column(str(number), BigInteger)
