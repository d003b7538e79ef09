"""SQL that uses the indexes on both databases, with the same statement text for any number of values.

A list of parameters makes a new statement for each length, which both sides then parse, and given a list of
pairs SQLite walks the whole table: so a list of values is one parameter. States are inlined as literals: with
a bound parameter the planner cannot prove that the partial index applies.

Statements of every poll are built once, as constants with named parameters: building one with SQLAlchemy
costs more CPU time than executing it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import (
    BindParameter,
    Boolean,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    FromClause,
    Integer,
    LargeBinary,
    Table,
    Text,
    TextClause,
    TypeDecorator,
    bindparam,
    literal_column,
    table,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.sql.util import ClauseAdapter
from sqlalchemy.types import TypeEngine

from billhook.inbox.tables.dialect import own_dialect


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC datetimes on every database; SQLite stores them without a time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], Any] | None:
        """Return what writes a time."""
        return own_dialect(dialect).write_time or super().bind_processor(dialect)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None] | None:
        """Return what reads a time."""
        return own_dialect(dialect).read_time or super().result_processor(dialect, coltype)


class _Values(TypeDecorator[list[Any]]):
    """An array on PostgreSQL, JSON text on SQLite; of integers, or of texts."""

    impl = Text
    cache_ok = True

    def __init__(self, numbers: bool) -> None:
        super().__init__()
        self.numbers = numbers

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(own_dialect(dialect).list_type(numbers=self.numbers))

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:
        """Return what makes the parameter of a list."""
        return own_dialect(dialect).list_value


class TextOfTables(TextClause):
    """SQL in which $delivery stands for the table of that name, in the schema that it is in.

    $hour(received_at) and the like stand for what InboxDialect makes of it.
    """

    inherit_cache = True


_IN_TEXT = re.compile(r"\$(\w+)(?:\(((?:[^()]|\([^()]*\))*)\))?")


@compiles(TextOfTables)
def _fill_in(element: TextOfTables, compiler: SQLCompiler, **kw: Any) -> str:
    own = own_dialect(compiler.dialect)

    def fill_in(found: re.Match[str]) -> str:
        name, argument = found.groups()
        if argument is None:
            return compiler.preparer.format_table(table(name))
        template: str = getattr(own, name)
        return template.format(*(argument.split(", ") if name == "in_list" else [argument]))

    written: str = compiler.visit_textclause(element, **kw)  # type: ignore[no-untyped-call]
    return _IN_TEXT.sub(fill_in, written)


def name_of(connection: Connection, its_table: Table) -> str:
    """Return the name of a table for SQL, with the schema that it is in."""
    return connection.dialect.identifier_preparer.format_table(its_table)


class _OfDialect(FunctionElement[Any]):
    """What `template`, an attribute of InboxDialect, makes of its clauses."""

    inherit_cache = True
    template: ClassVar[str]


@compiles(_OfDialect)
def _by_template(element: _OfDialect, compiler: SQLCompiler, **kw: Any) -> str:
    template: str = getattr(own_dialect(compiler.dialect), element.template)
    return template.format(*(compiler.process(clause, **kw) for clause in element.clauses))


class _Among(_OfDialect):
    inherit_cache = True
    template = "in_list"
    type = Boolean()

    def self_group(self, against: OperatorType | None = None) -> Any:
        """Return it unchanged: SQLAlchemy would compare it with 1 on SQLite, which then uses no index."""
        return self


def in_values(column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """Return the condition that the column has one of these values: integers or texts, as the column has."""
    values_type = _Values(isinstance(column.type, Integer))
    return _Among(column, bindparam(None, list(values), values_type, unique=True))


def in_parameter(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return the condition that the column has one of the values of a parameter, given as a list."""
    return _Among(column, list_parameter(name, numbers=isinstance(column.type, Integer)))


def list_parameter(name: str, *, numbers: bool) -> BindParameter[list[Any]]:
    """Return a parameter that is given as a list, of integers or of texts."""
    return bindparam(name, type_=_Values(numbers))


def in_states(column: ColumnElement[Any], *states: StrEnum) -> ColumnElement[bool]:
    """Return the condition for these states."""
    return column.in_([literal_column(f"'{state.value}'", Text) for state in states])


def words(condition: ColumnElement[bool]) -> str:
    """Return a condition of one table as the text that an index of it has, for a TextOfTables."""
    return str(condition.compile(compile_kwargs={"include_table": False}))


def of_alias(condition: ColumnElement[bool], alias: FromClause) -> ColumnElement[bool]:
    """Return a condition of a table for an alias of it."""
    return ClauseAdapter(alias).traverse(condition)


class _Position(_OfDialect):
    inherit_cache = True
    template = "position"
    type = Integer()


def position_of(value: bytes, column: ColumnElement[bytes]) -> ColumnElement[int]:
    """Return the place of these bytes in a column of bytes, from 1; 0 where they are not in it."""
    return _Position(column, bindparam(None, value, LargeBinary, unique=True))


def distinct_values(name: str, column: str, table: str, of_index: str) -> str:
    """Return a recursive CTE `name` of the values of a column among the rows that a partial index has.

    Each step is one look-up in the index, so it costs as much as there are values, however many rows: not by
    min(), for which PostgreSQL without statistics reads all rows. Its last row is NULL. `of_index` are the
    words of the index. For a TextOfTables.
    """
    return f"""{name} ({column}) AS (
        SELECT (SELECT {column} FROM ${table} WHERE {of_index} ORDER BY {column} LIMIT 1)
        UNION ALL SELECT (
            SELECT {column} FROM ${table} WHERE {of_index} AND {table}.{column} > {name}.{column}
            ORDER BY {column} LIMIT 1
        ) FROM {name} WHERE {name}.{column} IS NOT NULL
    )"""  # noqa: S608 - our own tables and columns
