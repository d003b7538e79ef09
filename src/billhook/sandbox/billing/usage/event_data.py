"""SQL expressions over an event's data, for both databases. `meters` implements the same in Python.

SQLite stores numbers as 64-bit integers and doubles: numbers with more digits are rounded here, and only
here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    Numeric,
    Text,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    not_,
    null,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB

from billhook.sandbox.billing.usage.meters import FilterOperator, MeterFilter
from billhook.sandbox.storage.tables.usage import event
from billhook.wire import strict_json

__all__ = ["EventData", "PostgresEventData", "SqliteEventData", "event_data", "filter_clause"]

_LARGEST = 2**63 - 1


class SqliteEventData:
    """The value under a key of `data`, by SQLite's JSON functions."""

    def __init__(self, key: str) -> None:
        # Safe to interpolate: check_property() rejects keys with quotes or backslashes.
        path = literal(f'$.data."{key}"', Text)
        self._type = func.json_type(event.c.body, path, type_=Text)
        self._value = func.json_extract(event.c.body, path)

    def exists(self) -> ColumnElement[bool]:
        return func.coalesce(self._type, "null") != "null"

    def number(self) -> ColumnElement[Any]:
        """The value if it is a number, else null."""
        return case((self._type.in_(["integer", "real"]), self._value), else_=null())

    def text(self) -> ColumnElement[Any]:
        """The value as text to group by; null without one."""
        return case(
            (self._type.in_(["true", "false"]), self._type),
            (self._type != "null", cast(self._value, Text)),
            else_=null(),
        )

    def instance(self) -> ColumnElement[Any]:
        """A value that is distinct for distinct scalars; null for anything else."""
        return case(
            # The prefix keeps the text "1" apart from the number 1, and "true" from true.
            (self._type == "text", literal("=", Text) + cast(self._value, Text)),
            (self._type.in_(["true", "false"]), self._type),
            (self._type.in_(["integer", "real"]), self._value),
            else_=null(),
        )

    def equals(self, wanted: Any) -> ColumnElement[bool]:
        if isinstance(wanted, bool):
            return self._type == ("true" if wanted else "false")
        if isinstance(wanted, str):
            return and_(self._type == "text", self._value == literal(wanted, Text))
        return and_(self._type.in_(["integer", "real"]), self._value == self.bound(wanted))

    def among(self, wanted: Sequence[Any]) -> ColumnElement[bool]:
        """Return the condition that the value is one of `wanted`.

        They are bound as one parameter: a condition for each would take seconds to compile.
        """
        # The same spelling as `instance`, so that both sides compare as one type.
        values = func.json_each(_sqlite_json([_sqlite_instance(each) for each in wanted])).table_valued(
            "value"
        )
        return self.instance().in_(select(values.c.value))

    @staticmethod
    def bound(number: int | Decimal) -> ColumnElement[Any]:
        """Return a number as a bound parameter."""
        plain = _sqlite_number(number)
        return literal(plain, BigInteger if isinstance(plain, int) else Double)


class PostgresEventData:
    """The value under a key of `data`, by PostgreSQL's jsonb, whose numbers are exact."""

    def __init__(self, key: str) -> None:
        self._value = func.jsonb_extract_path(cast(event.c.body, JSONB), "data", key, type_=JSONB)
        self._text = func.jsonb_extract_path_text(cast(event.c.body, JSONB), "data", key, type_=Text)
        self._type = func.jsonb_typeof(self._value, type_=Text)

    def exists(self) -> ColumnElement[bool]:
        return func.coalesce(self._type, "null") != "null"

    def number(self) -> ColumnElement[Any]:
        return case((self._type == "number", cast(self._text, Numeric)), else_=null())

    def text(self) -> ColumnElement[Any]:
        return self._text

    def instance(self) -> ColumnElement[Any]:
        return case((self._type.in_(["string", "boolean", "number"]), self._value), else_=null())

    def equals(self, wanted: Any) -> ColumnElement[bool]:
        if isinstance(wanted, bool):
            return and_(self._type == "boolean", self._text == ("true" if wanted else "false"))
        if isinstance(wanted, str):
            return and_(self._type == "string", self._text == literal(wanted, Text))
        return self.number() == self.bound(wanted)

    def among(self, wanted: Sequence[Any]) -> ColumnElement[bool]:
        values = func.jsonb_array_elements(cast(literal(strict_json.dumps(list(wanted)).decode()), JSONB))
        return self.instance().in_(select(values.table_valued("value").c.value))

    @staticmethod
    def bound(number: int | Decimal) -> ColumnElement[Any]:
        return literal(Decimal(number), Numeric)


EventData = SqliteEventData | PostgresEventData


def event_data(dialect: str) -> Callable[[str], EventData]:
    """Return the class that builds the expressions for a key on this database."""
    return PostgresEventData if dialect == "postgresql" else SqliteEventData


def filter_clause(one: MeterFilter, data: EventData) -> ColumnElement[bool]:
    """Return the condition that a filter accepts the event."""
    match one.operator:
        case FilterOperator.EXISTS:
            # Null as a value means true: `exists` alone asks for existence.
            return data.exists() if one.value is not False else not_(data.exists())
        case FilterOperator.GREATER_THAN:
            # Null, where there is no number, would make the whole condition null.
            return func.coalesce(data.number() > data.bound(one.value), false())
        case FilterOperator.LESS_THAN:
            return func.coalesce(data.number() < data.bound(one.value), false())
        case FilterOperator.IN:
            return func.coalesce(data.among(one.value), false())
        case FilterOperator.NOT_EQUALS:
            # True without a value, too: `_equals` is never null.
            return not_(_equals(data, one.value))
        case FilterOperator.EQUALS:
            return _equals(data, one.value)


def _sqlite_instance(wanted: Any) -> object:
    """Return `SqliteEventData.instance` of this value."""
    if isinstance(wanted, bool):
        return "true" if wanted else "false"
    return f"={wanted}" if isinstance(wanted, str) else _sqlite_number(wanted)


def _sqlite_number(number: int | Decimal) -> int | float:
    """Return the number as SQLite stores one of its size."""
    # SQLite compares integers exactly only within 64 bits.
    is_whole = number == int(number) and -_LARGEST <= number <= _LARGEST
    return int(number) if is_whole else float(number)


def _sqlite_json(values: Sequence[object]) -> str:
    """Return JSON for SQLite, which has no name for infinity but reads too large a number as one."""
    return json.dumps(values).replace("Infinity", "9e999")


def _equals(data: EventData, wanted: Any) -> ColumnElement[bool]:
    return func.coalesce(data.equals(wanted), false())
