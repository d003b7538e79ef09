"""What is in an event's data, said in SQL for both databases. `metering` says the same in Python.

SQLite holds numbers as 64-bit integers and doubles: what has more digits is rounded here, and only here.
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

from billhook.sandbox.billing.meter_fields import MeterFilter, Operator
from billhook.sandbox.storage.tables.usage import event
from billhook.wire import strict_json

__all__ = ["DataOnPostgres", "DataOnSqlite", "EventData", "event_data", "holds"]

_LARGEST = 2**63 - 1


class DataOnSqlite:
    """The value under a key of `data`, by SQLite's JSON functions."""

    def __init__(self, key: str) -> None:
        path = literal(f'$.data."{key}"', Text)
        self._type = func.json_type(event.c.body, path, type_=Text)
        self._value = func.json_extract(event.c.body, path)

    def there(self) -> ColumnElement[bool]:
        return func.coalesce(self._type, "null") != "null"

    def number(self) -> ColumnElement[Any]:
        """The number there, else null."""
        return case((self._type.in_(["integer", "real"]), self._value), else_=null())

    def text(self) -> ColumnElement[Any]:
        """What is there, as text to group by; null if there is nothing."""
        return case(
            (self._type.in_(["true", "false"]), self._type),
            (self._type != "null", cast(self._value, Text)),
            else_=null(),
        )

    def instance(self) -> ColumnElement[Any]:
        """A value that tells single values apart, else null."""
        return case(
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
        """Is it one of these? They are one parameter: a condition for each takes seconds to write down."""
        values = func.json_each(_json_of([_instance(each) for each in wanted])).table_valued("value")
        return self.instance().in_(select(values.c.value))

    @staticmethod
    def bound(number: int | Decimal) -> ColumnElement[Any]:
        """A number to compare with."""
        plain = _plain(number)
        return literal(plain, BigInteger if isinstance(plain, int) else Double)


class DataOnPostgres:
    """The same by PostgreSQL's jsonb, whose numbers are exact."""

    def __init__(self, key: str) -> None:
        self._value = func.jsonb_extract_path(cast(event.c.body, JSONB), "data", key, type_=JSONB)
        self._text = func.jsonb_extract_path_text(cast(event.c.body, JSONB), "data", key, type_=Text)
        self._type = func.jsonb_typeof(self._value, type_=Text)

    def there(self) -> ColumnElement[bool]:
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


EventData = DataOnSqlite | DataOnPostgres


def event_data(dialect: str) -> Callable[[str], EventData]:
    """What makes of a key the value under it, on this database."""
    return DataOnPostgres if dialect == "postgresql" else DataOnSqlite


def holds(one: MeterFilter, data: EventData) -> ColumnElement[bool]:
    """Does a filter let an event through?"""
    match one.operator:
        case Operator.EXISTS:
            return data.there() if one.value is not False else not_(data.there())
        case Operator.GREATER_THAN:
            return func.coalesce(data.number() > data.bound(one.value), false())
        case Operator.LESS_THAN:
            return func.coalesce(data.number() < data.bound(one.value), false())
        case Operator.IN:
            return func.coalesce(data.among(one.value), false())
        case Operator.NOT_EQUALS:
            return not_(_equals(data, one.value))
        case Operator.EQUALS:
            return _equals(data, one.value)


def _instance(wanted: Any) -> object:
    """What `DataOnSqlite.instance` is for this value."""
    if isinstance(wanted, bool):
        return "true" if wanted else "false"
    return f"={wanted}" if isinstance(wanted, str) else _plain(wanted)


def _plain(number: int | Decimal) -> int | float:
    """As SQLite has a number of that size."""
    is_whole = number == int(number) and -_LARGEST <= number <= _LARGEST
    return int(number) if is_whole else float(number)


def _json_of(values: Sequence[object]) -> str:
    """For SQLite, which reads an infinity as a number that is too large, and has no name for it."""
    return json.dumps(values).replace("Infinity", "9e999")


def _equals(data: EventData, wanted: Any) -> ColumnElement[bool]:
    return func.coalesce(data.equals(wanted), false())
