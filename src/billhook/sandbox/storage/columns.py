"""Column types that store times and decimals exactly in SQLite, and the kinds of tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, Integer, MetaData, Table, Text, func, select
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from billhook.fields.strict_json import MAX_DIGITS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_microseconds(at: datetime) -> int:
    """Return microseconds since 1970 UTC, as stored in a UtcMicroseconds column."""
    # In integers: a float of seconds would round microseconds.
    return (at - _EPOCH) // timedelta(microseconds=1)


def from_microseconds(at: int) -> datetime:
    """Return the UTC datetime of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=at)


class DecimalText(TypeDecorator[Decimal]):
    """A Decimal with all its digits, stored as text: SQLite has no decimals. Sum in Python, not in SQL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value)


class UtcMicroseconds(TypeDecorator[datetime]):
    """A UTC datetime, stored as microseconds since 1970, so that SQLite compares and groups it."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else to_microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_microseconds(value)


_EXACT = Context(prec=16 * MAX_DIGITS)


class ExactSum:
    """The SQL function `exact_sum`: adds numbers, given as text, without losing a digit."""

    def __init__(self) -> None:
        self._found: Decimal | None = None

    def step(self, number: str) -> None:
        """Add a row's number."""
        value = Decimal(number)
        self._found = value if self._found is None else self._combined(self._found, value)

    def _combined(self, found: Decimal, value: Decimal) -> Decimal:
        return _EXACT.add(found, value)

    def finalize(self) -> str | None:
        """Return the result; null without numbers."""
        return None if self._found is None else str(self._found)


class ExactMax(ExactSum):
    """The SQL function `exact_max`: the largest of numbers that are given as text."""

    def _combined(self, found: Decimal, value: Decimal) -> Decimal:
        return max(found, value)


def number_text(number: str) -> str:
    """Return the one spelling of a number, given as JSON, that equal numbers share: an SQL function."""
    value = _EXACT.normalize(Decimal(number))
    # Minus zero equals zero.
    return f"{value:f}" if value else "0"


metadata = MetaData()


def serial() -> Column[int]:
    """Return a primary key that grows with each row, by which lists are ordered."""
    # SQLite numbers rows by itself only in a column of exactly the type INTEGER.
    return Column("seq", Integer, primary_key=True, autoincrement=True)


def required(name: str, *arguments: Any, **options: Any) -> Column[Any]:
    """Return a column that has a value in each row."""
    return Column(name, *arguments, nullable=False, **options)


def record(name: str, *columns: Any) -> Table:
    """Return a table whose rows have a serial number, by which lists are ordered, and an id for the API."""
    return Table(
        name,
        metadata,
        serial(),
        required("id", Text, unique=True),
        *columns,
        # A number is never used again, so that the cursor of a page keeps its place.
        sqlite_autoincrement=True,
    )


def document(name: str, *columns: Any) -> Table:
    """Return a table of resources: the wire's JSON in `body`, and `columns` to query by."""
    return record(
        name,
        *columns,
        required("created_at", UtcMicroseconds),
        required("updated_at", UtcMicroseconds),
        required("body", Text),
    )


def in_texts(column: ColumnElement[str], texts: Iterable[str]) -> ColumnElement[bool]:
    """Return the condition that `column` is one of any number of texts."""
    # One parameter for all texts: SQLite limits the number of parameters of a statement.
    values = func.json_each(json.dumps(list(texts))).table_valued("value")
    return column.in_(select(values.c.value))
