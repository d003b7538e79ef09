"""Conditions that both databases find by an index, however many values and however large the table.

A list of parameters makes a new statement for each length, which both sides then parse, and given a list of
pairs SQLite walks the whole table: so many values are one parameter. A state that is a parameter hides that a
partial index fits: so states are part of the statement's text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Dialect,
    Integer,
    Text,
    TypeDecorator,
    bindparam,
    literal_column,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.types import TypeEngine

__all__ = ["among", "in_state"]


class _Values(TypeDecorator[list[Any]]):
    """An array on PostgreSQL, JSON text on SQLite; of whole numbers, or of texts."""

    impl = Text
    cache_ok = True

    def __init__(self, numbers: bool) -> None:
        super().__init__()
        self.numbers = numbers

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name != "postgresql":
            return dialect.type_descriptor(Text())
        return dialect.type_descriptor(ARRAY(BigInteger() if self.numbers else Text()))

    def process_bind_param(self, value: list[Any] | None, dialect: Dialect) -> Any:
        return value if dialect.name == "postgresql" else json.dumps(value)


class _Among(FunctionElement[bool]):
    inherit_cache = True
    type = Boolean()

    def self_group(self, against: OperatorType | None = None) -> Any:
        """As it is: SQLAlchemy would compare it with 1 on SQLite, which then uses no index."""
        return self


def among(column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """The column's value is one of these: whole numbers for a column of them, else texts."""
    values_type = _Values(isinstance(column.type, Integer))
    return _Among(column, bindparam(None, list(values), values_type, unique=True))


def in_state(column: ColumnElement[Any], *states: StrEnum) -> ColumnElement[bool]:
    """The column is in one of these states; write them in the order in which the index does."""
    return column.in_([literal_column(f"'{state.value}'", Text) for state in states])


@compiles(_Among, "postgresql")
def _in_array(element: _Among, compiler: SQLCompiler, **kw: Any) -> str:
    column, values = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} = ANY ({values})"


@compiles(_Among)
def _in_json(element: _Among, compiler: SQLCompiler, **kw: Any) -> str:
    column, values = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({values}))"  # noqa: S608 - of compiled clauses
