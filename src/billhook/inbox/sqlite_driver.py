"""Speaking to Python's sqlite3 directly: how to connect, to begin, and to insert a batch in one step."""

from __future__ import annotations

import sqlite3
import urllib.parse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection

from billhook.inbox.records import Incoming

__all__ = ["begin", "connect", "execute_unless_busy", "insertion"]


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
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    facts = tuple(
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    )
    if facts != ("wal", 2):
        connection.close()
        raise sqlite3.OperationalError(f"journal_mode, synchronous are {facts}, need ('wal', 2)")
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


def begin(connection: Connection) -> None:
    """Begin a transaction; one that may write takes the lock now.

    A deferred one that reads and then writes fails at once, whatever the busy timeout.
    """
    reading = connection.get_execution_options().get("billhook_read")
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
