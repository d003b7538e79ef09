"""Statements over many rows without a parameter for each, for batches of a thousand events.

Values have the form in which columns store them: times in microseconds, amounts as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Table,
    Text,
    any_,
    bindparam,
    func,
    literal,
    select,
    text,
)

__all__ = ["in_texts", "insert_rows", "select_by_keys"]


def in_texts(connection: Connection, column: ColumnElement[str], texts: Iterable[str]) -> ColumnElement[bool]:
    """Return the condition that `column` is one of any number of texts."""
    # One parameter for all texts: both databases limit the number of parameters of a statement.
    if connection.dialect.name == "postgresql":
        return column == any_(literal(list(texts), ARRAY(Text)))
    values = func.json_each(json.dumps(list(texts))).table_valued("value")
    return column.in_(select(values.c.value))


def select_by_keys(
    connection: Connection, table: Table, keys: Sequence[tuple[Any, ...]]
) -> Sequence[Row[Any]]:
    """Return the rows with these primary keys, with values as the columns store them."""
    columns = list(table.primary_key.columns)
    names = ", ".join(f"there.{column.name}" for column in table.columns)
    if connection.dialect.name == "postgresql":
        sent = [
            bindparam(f"k{n}", [key[n] for key in keys], ARRAY(_plain(column)))
            for n, column in enumerate(columns)
        ]
        source = f"unnest({', '.join(f':k{n}' for n in range(len(columns)))})"
        wanted = f"{source} AS wanted ({', '.join(f'k{n}' for n in range(len(columns)))})"
        equal = [f"there.{column.name} = wanted.k{n}" for n, column in enumerate(columns)]
    else:
        sent = [bindparam("keys", json.dumps(keys))]
        wanted = "json_each(:keys) AS wanted"
        equal = [
            f"there.{column.name} = json_extract(wanted.value, '$[{n}]')" for n, column in enumerate(columns)
        ]
    # The text holds names of our own tables only; the keys are bound parameters.
    statement = f"SELECT {names} FROM {wanted} JOIN {table.name} AS there ON {' AND '.join(equal)}"  # noqa: S608
    return connection.execute(text(statement).bindparams(*sent)).all()


def insert_rows(
    connection: Connection, table: Table, names: Sequence[str], rows: list[tuple[Any, ...]], then: str = ""
) -> None:
    """Insert `rows` with values for the columns `names`; `then` is appended to the statement."""
    if rows:
        # The driver's own executemany: SQLAlchemy would convert each value of a thousand rows.
        place = "?" if connection.dialect.paramstyle == "qmark" else "%s"
        places = ", ".join([place] * len(names))
        statement = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({places}) {then}"  # noqa: S608
        connection.exec_driver_sql(statement, rows)


def _plain(column: ColumnElement[Any]) -> Any:
    return BigInteger if isinstance(column.type, BigInteger) else Text
