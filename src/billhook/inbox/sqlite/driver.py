"""Python's sqlite3 driver: connect, begin, checkpoint, and the connections of one process."""

from __future__ import annotations

import sqlite3
import time
import urllib.parse
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from billhook.inbox.migrate import verify_opened
from billhook.inbox.sqlite.file import beside, record_log_owner, refuse_foreign_file, rewrite, sync
from billhook.inbox.sqlite.locks import WriteLock

_SETTINGS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    # On macOS fsync leaves the bytes in the drive's own memory; elsewhere these two change nothing.
    "fullfsync=1",
    "checkpoint_fullfsync=1",
    "wal_autocheckpoint=0",
    # What is deleted or written anew is overwritten with zeros, or an erased body would stay in the file.
    "secure_delete=ON",
    # Sort in memory: TMPDIR may be full, and must not hold copies of bodies.
    "temp_store=MEMORY",
)


def connect(path: Path, busy_seconds: float, *, foreign_keys: bool = True) -> sqlite3.Connection:
    """Open the file with a write-ahead log and synchronous=FULL. Raises sqlite3.Error.

    A missing file is an error, never a new and empty inbox.
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
        modes = tuple(
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        )
        if modes != ("wal", 2):
            need = f"journal_mode, synchronous are {modes}, need ('wal', 2)"
            raise sqlite3.OperationalError(need)  # noqa: TRY301 - closed below like any other failure
    except BaseException:
        # Closed now, not when it is collected: while one connection is open, SQLite keeps the file's
        # descriptors of all that were closed before.
        connection.close()
        raise
    return connection


def checkpoint_passive(path: Path) -> None:
    """Move the log into the file; the caller must hold the write lock.

    SQLite before 3.51.3 may corrupt the file when a checkpoint meets a commit of another process (its
    WAL-reset bug): this is why automatic checkpoints are off.
    """
    with closing(connect(path, busy_seconds=0)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def checkpoint_truncate(path: Path) -> None:
    """Move the log into the file, and empty it unless a reader still needs it; waits for no other process.

    The caller must hold the write lock. Raises sqlite3.Error.
    """
    with closing(connect(path, busy_seconds=0)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def take_over_log(path: Path, busy_seconds: float) -> None:
    """Write all of the log to the disk, then empty it; the caller must hold the write lock.

    After a failed fsync the log holds pages that can be read but will never reach the disk: the kernel counts
    them as written, and a later fsync succeeds without them. SQLite reads such a log when it is opened, and
    so the delivery that was refused is there again. It has to be written again before it counts as stored,
    and before it is moved into the file: what the disk has of the log is older than that, and would be read
    instead of it after a power failure. So no process writes, or takes a delivery for a duplicate of a stored
    one, before it has called this. Raises sqlite3.Error or OSError.
    """
    with closing(connect(path, busy_seconds)) as connection:
        # SQLite's own lock too: another program takes no other.
        execute_until_deadline(connection, "BEGIN IMMEDIATE", (), busy_seconds)
        # As SQLite names it: `path` may be a link, and the log is beside the file itself.
        file = Path(connection.execute("PRAGMA database_list").fetchone()[2])
        rewrite(beside(file, "-wal"))
        # SQLite syncs the folder of a new log too, but ignores a failure of that.
        sync(file.parent)
        connection.execute("ROLLBACK")
    try:
        checkpoint_truncate(path)
    except sqlite3.OperationalError as error:
        raise_unless_busy(error)  # another process opens it at this moment: what the log holds is on the disk


def raise_unless_busy(error: sqlite3.OperationalError) -> None:
    """Return if another connection has the file locked. Raises any other `error`."""
    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:  # extended codes have more bits
        raise error


def new_engine(path: Path, busy_seconds: float, *, foreign_keys: bool = True) -> Engine:
    """Create SQLAlchemy's engine, with connections made by `connect`.

    A migration that recreates a table needs `foreign_keys` off: dropping the old table would else delete the
    rows that refer to it.
    """
    creator = partial(connect, path, busy_seconds, foreign_keys=foreign_keys)
    engine = create_engine("sqlite+pysqlite://", creator=creator, poolclass=QueuePool)
    event.listen(engine, "begin", partial(_begin, busy_seconds))
    return engine


def _begin(busy_seconds: float, connection: Connection) -> None:
    """Begin a transaction; one that may write takes the lock now, and waits for it if it must.

    A deferred one that reads and then writes fails at once, however long the busy timeout.
    """
    if connection.get_execution_options().get("billhook_read"):
        connection.exec_driver_sql("BEGIN")
    else:
        driver: Any = connection.connection.driver_connection
        execute_until_deadline(driver, "BEGIN IMMEDIATE", (), busy_seconds)


def execute_until_deadline(
    connection: sqlite3.Connection, statement: str, values: Sequence[object], busy_seconds: float
) -> sqlite3.Cursor:
    """Execute, waiting for SQLite's lock. Raises sqlite3.Error when it is not free in time.

    In short steps: those of SQLite's own busy handler grow to 0.1 s.
    """
    end = time.monotonic() + busy_seconds
    connection.execute("PRAGMA busy_timeout=0")
    while True:
        try:
            return connection.execute(statement, values)
        except sqlite3.OperationalError as error:
            raise_unless_busy(error)
        if time.monotonic() > end:
            raise sqlite3.OperationalError("database is locked")
        time.sleep(0.0005)


class Connections:
    """The connections of one process, opened at first use, closed all together. The caller holds a lock."""

    def __init__(self, path: Path, busy_seconds: float, lock: WriteLock) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._lock = lock
        self._log_is_ours = False
        self.engine: Engine | None = None
        self.writer: Connection | None = None
        self.inserter: sqlite3.Connection | None = None

    def open_engine(self) -> Engine:
        """Open the engine, for reading. Raises SchemaMismatch, or ForeignFile for another program's file."""
        # First: to connect makes a log beside the file, and changes its mode for good.
        refuse_foreign_file(self._path)
        engine = new_engine(self._path, self._busy_seconds)
        with engine.connect().execution_options(billhook_read=True) as connection:
            verify_opened(connection)
        with suppress(OSError):  # a reader works without room on the disk
            record_log_owner(self._path)
        self.engine = engine
        return engine

    def open_writer(self) -> Connection:
        """Open the connection for transactions; the caller must hold the write lock."""
        self.writer = self._engine_to_write().connect()
        return self.writer

    def open_inserter(self) -> sqlite3.Connection:
        """Open the driver's connection for single statements."""
        with self._lock.held():
            self._engine_to_write()
        # No time to wait in SQLite, whose steps are long: see execute_until_deadline.
        self.inserter = connect(self._path, busy_seconds=0)
        return self.inserter

    def _engine_to_write(self) -> Engine:
        engine = self.engine or self.open_engine()
        # What another process, or a failure, left in the log may be in memory only: see take_over_log.
        if not self._log_is_ours:
            take_over_log(self._path, self._busy_seconds)
            record_log_owner(self._path)
            self._log_is_ours = True
        return engine

    def close(self) -> None:
        """Close them all in order; the next use opens them again, and takes over the log first."""
        # While they are closed another process may fail, and leave in the log what is not on the disk.
        self._log_is_ours = False
        with suppress(DBAPIError, sqlite3.Error):
            if self.inserter is not None:
                self.inserter.close()
            if self.writer is not None:
                self.writer.invalidate()
                self.writer.close()
        self.writer = self.inserter = None
        if self.engine is not None:
            self.engine.dispose()
            self.engine = None
