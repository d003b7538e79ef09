"""Speaking to Python's sqlite3 directly: how to connect, to begin, and to insert a batch in one step."""

from __future__ import annotations

import sqlite3
import time
import urllib.parse
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from billhook.inbox.records import Incoming
from billhook.inbox.sqlite.writelock import WriteLock

__all__ = [
    "begin",
    "begin_log_anew",
    "checkpoint",
    "connect",
    "execute_in_turn",
    "insertion",
    "new_engine",
    "new_ids",
]


_SETTINGS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    # On macOS fsync leaves the bytes in the drive's own memory; elsewhere these two change nothing.
    "fullfsync=1",
    "checkpoint_fullfsync=1",
    "wal_autocheckpoint=0",
    # What is sorted stays out of TMPDIR: that may be full, and bodies are nobody else's to read.
    "temp_store=MEMORY",
)


def connect(path: Path, busy_seconds: float, *, foreign_keys: bool = True) -> sqlite3.Connection:
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
        keys = f"foreign_keys={'ON' if foreign_keys else 'OFF'}"
        for setting in (*_SETTINGS, keys):
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


def checkpoint(path: Path) -> None:
    """Move the log into the file; the caller must hold the write lock.

    SQLite before 3.51.3 may corrupt the file when a checkpoint meets another's commit (its WAL-reset
    bug): this is why the automatic checkpoints are off.
    """
    with closing(connect(path, busy_seconds=0)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def begin_log_anew(path: Path, busy_seconds: float) -> None:
    """Move all of the log into the file and empty it; the caller must hold the write lock.

    After a failed sync the log may hold pages that are read, but will never reach the disk: the system took
    them for written. What SQLite recovers from such a log, and all that it would add behind it, is gone when
    the power fails. So nobody trusts a log that somebody else began; sqlite3.Error if that must be.
    """
    with closing(connect(path, busy_seconds)) as connection:
        ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if busy:
        raise sqlite3.OperationalError("database is locked: somebody reads or writes it for too long")


def execute_in_turn(
    connection: sqlite3.Connection, statement: str, values: list[object], lock: WriteLock, busy_seconds: float
) -> sqlite3.Cursor:
    """Execute at once, or, when another connection has the file locked, in turn with the other processes."""
    if cursor := _execute_unless_busy(connection, statement, values):
        return cursor
    with lock.held():  # only short inserts of others can be in the way then
        return _patiently_execute(connection, statement, values, busy_seconds)


def _execute_unless_busy(
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
    "INSERT INTO delivery (source, key, event_type, body, digest, headers, signed_at, received_at, state)"
    " VALUES "
)
_INSERT_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, 'received')"
_UNLESS_STORED = " ON CONFLICT (source, key, slot) DO NOTHING"


def insertion(rows: Sequence[Incoming]) -> tuple[str, list[object]]:
    """One statement that inserts the rows not stored yet, and its values."""
    statement = _INSERT_NEW + ",".join([_INSERT_ROW] * len(rows)) + _UNLESS_STORED
    return statement, [value for row in rows for value in _values(row)]


def new_ids(cursor: sqlite3.Cursor) -> range:
    """The ids of the rows inserted: the lock was ours for the statement, so they follow one another."""
    last, count = cursor.lastrowid or 0, cursor.rowcount
    return range(last - count + 1, last + 1)


def _values(row: Incoming) -> tuple[object, ...]:
    times = _moment(row.signed_at), _moment(row.received_at)
    return (row.source, row.key, row.event_type, row.body, row.digest, row.headers, *times)


def _moment(moment: datetime | None) -> str | None:
    """A datetime as SQLAlchemy writes it to SQLite."""
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def new_engine(path: Path, busy_seconds: float, *, foreign_keys: bool = True) -> Engine:
    """SQLAlchemy's side of it: connections as `connect` makes them, transactions as they must begin.

    A migration that makes a table anew needs them without `foreign_keys`: to drop the old table would else
    delete what refers to its rows.
    """
    creator = partial(connect, path, busy_seconds, foreign_keys=foreign_keys)
    engine = create_engine("sqlite+pysqlite://", creator=creator, poolclass=QueuePool)
    event.listen(engine, "begin", partial(_begin, busy_seconds))
    return engine


def _begin(busy_seconds: float, connection: Connection) -> None:
    """Begin a transaction; one that may write takes the lock now, and waits for it if it must.

    A deferred one that reads and then writes fails at once, whatever the busy timeout.
    """
    if connection.get_execution_options().get("billhook_read"):
        connection.exec_driver_sql("BEGIN")
    else:
        driver: Any = connection.connection.driver_connection
        begin(driver, busy_seconds)


def begin(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Begin a transaction that writes; sqlite3.Error when the lock is not to be had in time."""
    _patiently_execute(connection, "BEGIN IMMEDIATE", [], busy_seconds)


def _patiently_execute(
    connection: sqlite3.Connection, statement: str, values: list[object], busy_seconds: float
) -> sqlite3.Cursor:
    """Execute, waiting for a lock in short steps: those of SQLite's own handler grow to 0.1 s."""
    end = time.monotonic() + busy_seconds
    connection.execute("PRAGMA busy_timeout=0")
    while not (cursor := _execute_unless_busy(connection, statement, values)):
        if time.monotonic() > end:
            raise sqlite3.OperationalError("database is locked")
        time.sleep(0.0005)
    return cursor
