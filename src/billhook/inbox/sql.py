"""SQL that uses the indexes on both databases, with the same statement text for any number of values.

A list of parameters makes a new statement for each length, which both sides then parse, and given a list of
pairs SQLite walks the whole table: so a list of values is one parameter. States are inlined as literals: with
a bound parameter the planner cannot prove that the partial index applies.

Statements of every poll are built once, as constants with named parameters: building one with SQLAlchemy
costs more CPU time than executing it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    FromClause,
    Insert,
    Integer,
    LargeBinary,
    Table,
    Text,
    TextClause,
    TypeDecorator,
    Update,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
    table,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.types import TypeEngine


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC datetimes on every database; SQLite stores them without a time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    # On SQLite not by its own type, whose times have no zone: six are read for each delivery that is
    # handled, and a second function for the zone would cost more than reading them.

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], Any] | None:
        """Return what writes a time."""
        if dialect.name == "postgresql":
            return super().bind_processor(dialect)
        return lambda value: None if value is None else utc_text(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None] | None:
        """Return what reads a time."""
        if dialect.name == "postgresql":
            return super().result_processor(dialect, coltype)
        return _moment


class _Values(TypeDecorator[list[Any]]):
    """An array on PostgreSQL, JSON text on SQLite; of integers, or of texts."""

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


class TextOfTables(TextClause):
    """SQL in which $delivery stands for the table of that name, in the schema that it is in."""

    inherit_cache = True


_TABLE = re.compile(r"\$(\w+)")


@compiles(TextOfTables)
def _name_tables(element: TextOfTables, compiler: SQLCompiler, **kw: Any) -> str:
    written: str = compiler.visit_textclause(element, **kw)  # type: ignore[no-untyped-call]
    return _TABLE.sub(lambda found: compiler.preparer.format_table(table(found[1])), written)


def name_of(connection: Connection, its_table: Table) -> str:
    """Return the name of a table for SQL, with the schema that it is in."""
    return connection.dialect.identifier_preparer.format_table(its_table)


class _Among(FunctionElement[bool]):
    inherit_cache = True
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
    return _Among(column, bindparam(name, type_=_Values(isinstance(column.type, Integer))))


def in_states(column: ColumnElement[Any], *states: StrEnum) -> ColumnElement[bool]:
    """Return the condition for these states, which must be in the order of the partial index."""
    return column.in_([literal_column(f"'{state.value}'", Text) for state in states])


@compiles(_Among, "postgresql")
def _in_array(element: _Among, compiler: SQLCompiler, **kw: Any) -> str:
    column, values = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} = ANY ({values})"


@compiles(_Among)
def _in_json(element: _Among, compiler: SQLCompiler, **kw: Any) -> str:
    column, values = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({values}))"  # noqa: S608 - of compiled clauses


class _Position(FunctionElement[int]):
    inherit_cache = True
    type = Integer()


def position_of(value: bytes, column: ColumnElement[bytes]) -> ColumnElement[int]:
    """Return the place of these bytes in a column of bytes, from 1; 0 where they are not in it."""
    return _Position(column, bindparam(None, value, LargeBinary, unique=True))


@compiles(_Position, "postgresql")
def _position(element: _Position, compiler: SQLCompiler, **kw: Any) -> str:
    column, value = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"position({value} IN {column})"


@compiles(_Position)
def _instr(element: _Position, compiler: SQLCompiler, **kw: Any) -> str:
    column, value = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"instr({column}, {value})"


def execute_each(
    connection: Connection, statement: Insert | Update, rows: Iterable[Mapping[str, Any]]
) -> None:
    """Execute a statement for each row on SQLite, by the driver.

    SQLAlchemy takes longer to prepare the values of a row than SQLite to write it.
    """
    sql, names, times = _compile_for_driver(statement)
    values = []
    for row in rows:
        given = dict(row)
        for name in times:
            if (moment := given[name]) is not None:
                given[name] = utc_text(moment)
        values.append(tuple([given[name] for name in names]))
    connection.exec_driver_sql(sql, values)


@cache
def _compile_for_driver(statement: Insert | Update) -> tuple[str, list[str], list[str]]:
    """Return the statement's text, its parameters in their order, and those that are times."""
    compiled = statement.compile(dialect=sqlite.dialect())
    names = compiled.positiontup or []
    return (
        str(compiled),
        names,
        [name for name, value in compiled.binds.items() if isinstance(value.type, UtcDateTime)],
    )


def json_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as one JSON text; times in it are for PostgreSQL."""
    return json.dumps([*rows], default=datetime.isoformat)


_TEXT_LENGTH = len("2026-01-31 23:59:59.000000")


def _moment(text: str | None) -> datetime | None:
    """Return the time that `utc_text` has written, or an operator: without a zone or a time, or with them."""
    if text is None:
        return None
    if len(text) == _TEXT_LENGTH:
        return datetime.fromisoformat(f"{text}+00:00")  # at once: a zone given later takes ten times as long
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def utc_text(moment: datetime) -> str:
    """Return a time as SQLAlchemy writes it to SQLite: UTC, `2026-01-31 23:59:59.000000`."""
    # Not by strftime: that takes three times as long, twice for each delivery.
    return moment.astimezone(UTC).isoformat(" ", "microseconds").removesuffix("+00:00")


def distinct_values(name: str, column: str, table: str, of_index: str) -> str:
    """Return a recursive CTE `name` of the values of a column among the rows that a partial index has.

    Each step is one look-up in the index, so it costs as much as there are values, however many rows: not by
    min(), for which PostgreSQL without statistics reads all rows. Its last row is NULL. SQLite knows the
    index by its words, `of_index`. For a TextOfTables.
    """
    return f"""{name} ({column}) AS (
        SELECT (SELECT {column} FROM ${table} WHERE {of_index} ORDER BY {column} LIMIT 1)
        UNION ALL SELECT (
            SELECT {column} FROM ${table} WHERE {of_index} AND {table}.{column} > {name}.{column}
            ORDER BY {column} LIMIT 1
        ) FROM {name} WHERE {name}.{column} IS NOT NULL
    )"""  # noqa: S608 - our own tables and columns


def json_rows(parameter: str, columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
    """Return the rows of a parameter, made by `json_text`, to be joined with a table of PostgreSQL."""
    record = func.jsonb_to_recordset(cast(bindparam(parameter, type_=Text), JSONB))
    typed = [column(name, column_type) for name, column_type in columns.items()]
    return record.table_valued(*typed, name=parameter).render_derived(with_types=True)


def json_rows_on_sqlite(parameter: str, columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
    """Return the rows of a parameter, a JSON text, to be joined with a table of SQLite."""
    each = func.json_each(bindparam(parameter, type_=Text)).table_valued("value")
    typed = [
        func.json_extract(each.c.value, literal_column(f"'$.{name}'"), type_=column_type).label(name)
        for name, column_type in columns.items()
    ]
    return select(*typed).select_from(each).subquery(parameter)


def upsert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert that may say what to do `on_conflict`."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)
