"""The SQL of SQLite. billhook.inbox.postgres.dialect is beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Insert,
    Table,
    Text,
    Update,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

from billhook.inbox.tables.dialect import FirstRuns, InboxDialect, RunUpdate, with_own
from billhook.inbox.tables.schema import run
from billhook.inbox.tables.sql import UtcDateTime

EVERY_COLUMN = (
    "SELECT made.name, its.name FROM sqlite_master AS made JOIN pragma_table_info(made.name) AS its "
    "WHERE made.type = 'table'"
)


_TEXT_LENGTH = len("2026-01-31 23:59:59.000000")


def _moment(text: str | None) -> datetime | None:
    """Return the time that `utc_text` has written, or an operator: without a zone or a time, or with them."""
    if text is None:
        return None
    if len(text) == _TEXT_LENGTH:
        return datetime.fromisoformat(f"{text}+00:00")  # at once: a zone given later takes ten times as long
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def utc_text(moment: datetime | None) -> str | None:
    """Return a time as SQLAlchemy writes it to SQLite: UTC, `2026-01-31 23:59:59.000000`."""
    if moment is None:
        return None
    # Not by strftime: that takes three times as long, twice for each delivery.
    return moment.astimezone(UTC).isoformat(" ", "microseconds").removesuffix("+00:00")


class SqliteDialect(InboxDialect):
    """The SQL of SQLite, whose write transactions lock the whole file: there is no lock to be taken."""

    watermark_lag = timedelta(seconds=2)
    every_column = text(EVERY_COLUMN)
    # Times not by SQLAlchemy's own type, which have no zone: six are read for each delivery that is handled,
    # and a second function for the zone would cost more than reading them.
    write_time = staticmethod(utc_text)
    read_time = staticmethod(_moment)
    list_value = staticmethod(json.dumps)
    in_list = "{} IN (SELECT value FROM json_each({}))"
    position = "instr({}, {})"
    hour = "substr({}, 1, 13) || ':00:00.000000'"
    minute = "substr({}, 1, 16) || ':00.000000'"
    each_text = "json_each({}) AS one"
    by_index = "{} AND "
    """SQLite finds a partial index by the words of its condition, so a query repeats them."""

    def list_type(self, *, numbers: bool) -> TypeEngine[Any]:
        """Return the type of a JSON text."""
        return Text()

    def rows(self, parameter: str, columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
        """Return the rows of a JSON text."""
        each = func.json_each(bindparam(parameter, type_=Text)).table_valued("value")
        typed = [
            func.json_extract(each.c.value, literal_column(f"'$.{name}'"), type_=column_type).label(name)
            for name, column_type in columns.items()
        ]
        return select(*typed).select_from(each).subquery(parameter)

    def insert(self, table: Table) -> sqlite.Insert:
        """Return SQLite's insert."""
        return sqlite.insert(table)

    def hour_text(self, moment: ColumnElement[datetime]) -> ColumnElement[str]:
        """Return the beginning of the text."""
        return func.substr(moment, 1, 13)

    def json_object(self, key: ColumnElement[str], value: ColumnElement[Any]) -> ColumnElement[Any]:
        """Return json_group_object()."""
        return func.json_group_object(key, value)

    def insert_runs(
        self,
        connection: Connection,
        columns: Sequence[str],
        rows: Sequence[Mapping[str, Any]],
        shared: Mapping[str, Any],
    ) -> dict[tuple[int, str], int]:
        """Insert them one by one."""
        execute_each(connection, _insert_run(columns), rows, shared)
        # Consecutive: the transaction holds the write lock, and a table's next id is its highest plus one.
        last = connection.exec_driver_sql("SELECT last_insert_rowid()").scalar_one()
        return {
            (row["delivery_id"], row["handler"]): run_id
            for run_id, row in enumerate(rows, last - len(rows) + 1)
        }

    def update_runs(
        self, connection: Connection, update: RunUpdate, rows: Sequence[Mapping[str, Any]]
    ) -> Sequence[Sequence[Any]]:
        """Read them first: one by one they return no rows; between the two no other transaction writes."""
        found = connection.execute(update.found, {"run_ids": [row["run_id"] for row in rows]}).all()
        execute_each(connection, _update_run(update), rows)
        leases = {(row["run_id"], row["fencing_token"]) for row in rows}
        return [row for row in found if (row[0], row[1]) in leases]

    def texts(self, name: str, *columns: str) -> FromClause:
        """Return the rows of a JSON text."""
        return self.rows(name, dict.fromkeys(columns, Text()))

    def texts_value(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Return the JSON text."""
        return {name: json.dumps([dict(zip(columns, row, strict=True)) for row in rows])}

    def first_of_each(
        self, names: str, first: FirstRuns, columns: Sequence[Any]
    ) -> tuple[FromClause, Sequence[ColumnElement[Any]]]:
        """Return them by their ids: it has no LATERAL."""
        wanted = func.json_each(bindparam(names, type_=Text)).table_valued("value", name="wanted")
        own = run.alias("own")
        ids = first(own, wanted.c.value, (own.c.id,)).correlate(wanted)
        return wanted.join(run, run.c.id.in_(ids)), columns


SQLITE = SqliteDialect()
_FOR_DRIVER: Any = with_own(sqlite.dialect(), SQLITE)


def execute_each(
    connection: Connection,
    statement: Insert | Update,
    rows: Iterable[Mapping[str, Any]],
    shared: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Execute a statement for each row, by the driver; what a row does not have is as in `shared`.

    SQLAlchemy takes longer to prepare the values of a row than SQLite to write it.
    """
    sql, names, times = _compile_for_driver(statement)
    common = {
        name: utc_text(of_all) if isinstance(of_all, datetime) else of_all for name, of_all in shared.items()
    }
    values = []
    for row in rows:
        given = {**common, **row}
        for name in times:
            if isinstance(moment := given[name], datetime):
                given[name] = utc_text(moment)
        values.append(tuple([given[name] for name in names]))
    connection.exec_driver_sql(sql, values)


@cache
def _insert_run(columns: Sequence[str]) -> Insert:
    return insert(run).values({name: bindparam(name, type_=run.c[name].type) for name in columns})


@cache
def _update_run(update: RunUpdate) -> Update:
    return update.statement({name: bindparam(name, type_=of) for name, of in update.columns.items()})


@cache
def _compile_for_driver(statement: Insert | Update) -> tuple[str, list[str], list[str]]:
    """Return the statement's text, its parameters in their order, and those that are times."""
    compiled = statement.compile(dialect=_FOR_DRIVER)
    names = compiled.positiontup or []
    return (
        str(compiled),
        names,
        [name for name, value in compiled.binds.items() if isinstance(value.type, UtcDateTime)],
    )
