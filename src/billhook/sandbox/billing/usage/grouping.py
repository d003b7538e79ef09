"""Groupings of usage in aggregations. The specification does not show the values of groupBy.

Source: spec, "Endpoints", POST /v2/events/aggregation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Text, literal_column, type_coerce

from billhook.errors import RuleBroken
from billhook.sandbox.billing.usage.event_data import event_data
from billhook.sandbox.billing.usage.meters import check_property
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.storage.columns import to_microseconds
from billhook.sandbox.storage.tables.usage import event
from billhook.wire.strict_json import datetime_text

__all__ = ["Grouping", "grouping"]

_YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)  # a Monday
_HOUR, _DAY, _WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)
_DATA = "data."


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
        # Counted from the year 1 no number is negative, so integer division truncates alike on both
        # databases. The numbers are literals: PostgreSQL does not see that two expressions with bound
        # parameters are equal, and rejects the GROUP BY.
        since = type_coerce(event.c.at, BigInteger) + _integer_literal(-to_microseconds(_YEAR_1))
        return since // _integer_literal(self._length // timedelta(microseconds=1))

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

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect

    def column(self) -> ColumnElement[Any]:
        if self._dialect == "postgresql":
            text = "to_char(timestamp '1970-01-01' + event.at / 86400000000 * interval '1 day', 'YYYY-MM')"
        else:
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

    def __init__(self, key: str, dialect: str) -> None:
        self._key, self._dialect = key, dialect

    def column(self) -> ColumnElement[Any]:
        return event_data(self._dialect)(self._key).text()


def grouping(group_by: str, dialect: str) -> Grouping:
    """Return the grouping of this name; rejects an unknown one."""
    known: dict[str, Grouping] = {
        "hour": _FixedSpan(_HOUR),
        "day": _FixedSpan(_DAY),
        "week": _FixedSpan(_WEEK),
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
        f"groupBy must be one of {', '.join(known)}, or {_DATA}<name> for a key in the events' data",
        "groupBy",
    )


def _integer_literal(number: int) -> ColumnElement[int]:
    return literal_column(str(number), BigInteger)
