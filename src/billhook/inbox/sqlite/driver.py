"""Speaking to Python's sqlite3 directly: how to connect, to begin, and to insert a batch in one step."""

from __future__ import annotations

import sqlite3
import time
import urllib.parse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from billhook.inbox.records import Incoming

__all__ = ["begin", "connect", "execute_unless_busy", "insertion", "patiently_execute"]


def connect(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Open the file as billhook needs it: write-ahead log, synchronous=FULL; sqlite3.Error if it cannot be.

    A file that is missing is an error, never a new and empty inbox.
    """
    connection = sqlite3.connect(
        f"file:{urllib.parse.quote(str(path))}?mode=rw",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "wal_autocheckpoint=0"):
            connection.execute(f"PRAGMA {setting}")
        facts = tuple(
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        )
        if facts != ("wal", 2):
            need = f"journal_mode, synchronous are {facts}, need ('wal', 2)"
            raise sqlite3.OperationalError(need)  # noqa: TRY301 - closed below like any other failure
    except BaseException:
        # Closed now, not when it is collected: while one connection is open, SQLite keeps the file's
        # descriptors of all that were closed before.
        connection.close()
        raise
    return connection


def execute_unless_busy(
    connection: sqlite3.Connection, statement: str, values: list[object]
) -> sqlite3.Cursor | None:
    """Execute, or None when another connection has the file locked."""
    try:
        return connection.execute(statement, values)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:  # extended codes have more bits
            raise
        return None


_INSERT_NEW = (
    "INSERT INTO delivery (source, key, event_type, body, headers, signed_at, received_at, state) VALUES "
)
_INSERT_ROW = "(?, ?, ?, ?, ?, ?, ?, 'received')"
_UNLESS_STORED = " ON CONFLICT (source, key) DO NOTHING"


def insertion(rows: Sequence[Incoming]) -> tuple[str, list[object]]:
    """One statement that inserts the rows not stored yet, and its values."""
    statement = _INSERT_NEW + ",".join([_INSERT_ROW] * len(rows)) + _UNLESS_STORED
    return statement, [value for row in rows for value in _values(row)]


def _values(row: Incoming) -> tuple[object, ...]:
    times = _moment(row.signed_at), _moment(row.received_at)
    return (row.source, row.key, row.event_type, row.body, row.headers, *times)


def _moment(moment: datetime | None) -> str | None:
    """A datetime as SQLAlchemy writes it to SQLite."""
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def begin(busy_seconds: float, connection: Connection) -> None:
    """Begin a transaction; one that may write takes the lock now, and waits for it if it must.

    A deferred one that reads and then writes fails at once, whatever the busy timeout.
    """
    if connection.get_execution_options().get("billhook_read"):
        connection.exec_driver_sql("BEGIN")
    else:
        driver: Any = connection.connection.driver_connection
        patiently_execute(driver, "BEGIN IMMEDIATE", [], busy_seconds)


def patiently_execute(
    connection: sqlite3.Connection, statement: str, values: list[object], busy_seconds: float
) -> sqlite3.Cursor:
    """Execute, waiting for a lock in short steps: those of SQLite's own handler grow to 0.1 s."""
    end = time.monotonic() + busy_seconds
    connection.execute("PRAGMA busy_timeout=0")
    while not (cursor := execute_unless_busy(connection, statement, values)):
        if time.monotonic() > end:
            raise sqlite3.OperationalError("database is locked")
        time.sleep(0.0005)
    return cursor
