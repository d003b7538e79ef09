"""The SQLite file behind an inbox: one writer at a time, every commit on the disk before it counts.

What is special about SQLite lives here and only here: pragmas, the turn that processes take to write,
the check that the file is still the file, and the bell that wakes a worker in another process.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from billhook.errors import ConfigError, InboxUnavailable
from billhook.inbox.bell import Bell
from billhook.inbox.records import Incoming

__all__ = ["SqliteDatabase"]


class SqliteDatabase:
    """Connections to one SQLite file, built anew in every process.

    Writers of all processes take turns on a lock beside the file: the kernel wakes the next one at
    once, where SQLite's own busy handler would sleep and try again. The turn also keeps checkpoints
    one at a time, which SQLite before 3.51.3 needs to be safe from the WAL-reset bug.
    """

    dialect = "sqlite"

    def __init__(self, path: str, busy_seconds: float, verify: Callable[[Connection], None]) -> None:
        """`verify` is called with every new connection's first transaction and raises to refuse it."""
        self.path = Path(path).absolute()
        self._busy_seconds = busy_seconds
        self._verify = verify
        self._forked: list[object] = []
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.RLock()
        self._engine: Engine | None = None
        self._writer: Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._turn: int | None = None
        self.bell = Bell(self._beside("-wake"))

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _own(self) -> None:
        """After a fork, leave the parent's connections alone: closing them here would drop its locks."""
        if self._pid != os.getpid():
            self._forked.append((self._engine, self._writer))
            if self._turn is not None:
                os.close(self._turn)
            self._start_over()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that holds the write lock from its start; committed when the block ends.

        Raises InboxUnavailable when the storage fails, and has then rolled back.
        """
        self._own()
        with self._mutex, self._turn_taken(), self._storage_errors():
            self._same_file()
            if self._writer is None:
                self._writer = self._open().connect()
            with self._writer.begin():
                yield self._writer

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent snapshot; takes no lock, and writes in it fail."""
        self._own()
        with self._storage_errors():
            self._same_file()
            with (
                self._open().connect().execution_options(billhook_read=True) as connection,
                connection.begin(),
            ):
                yield connection

    @contextmanager
    def write_unverified(self) -> Iterator[Connection]:
        """A write transaction on a schema of any age, for the migrations."""
        self._own()
        with self._mutex, self._turn_taken(), self._storage_errors():
            engine = self._new_engine()
            try:
                with engine.begin() as connection:
                    yield connection
            finally:
                engine.dispose()

    def close(self) -> None:
        """Close every connection of this process; the next use opens them again. Call before a fork."""
        self._own()
        with self._mutex:
            self._forget()
            if self._turn is not None:
                os.close(self._turn)
                self._turn = None
            self.bell.close()

    def create(self) -> None:
        """Make the file, readable by its owner only, and the folder it is in, where they are missing."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise ConfigError(f"the inbox {self.path} cannot be opened: {error.strerror}") from None

    @staticmethod
    def insert_new(connection: Connection, rows: Sequence[Incoming]) -> Sequence[int]:
        """Insert deliveries that are new; see billhook.inbox.accept.InsertNew.

        One statement and one step of it, by hand: the driver gives up the interpreter's lock at every
        row that comes back, and must win it again from the request threads while the file is locked.
        """
        values: list[object] = []
        for row in rows:
            values += (row.source, row.key, row.event_type, row.body, row.headers)
            values += (_moment(row.signed_at), _moment(row.received_at))
        result = connection.exec_driver_sql(
            _INSERT_NEW + ",".join([_INSERT_ROW] * len(rows)) + _UNLESS_STORED, tuple(values)
        )
        # We hold the write lock, so the new rows' ids follow one another and end with the last.
        return range(result.lastrowid - result.rowcount + 1, result.lastrowid + 1)

    @contextmanager
    def _turn_taken(self) -> Iterator[None]:
        try:
            if self._turn is None:
                self._turn = os.open(self._beside("-lock"), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._turn, fcntl.LOCK_EX)
        except OSError as error:
            raise InboxUnavailable(f"the lock of {self.path} failed: {error.strerror}") from None
        try:
            yield
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, sqlite3.Error) as error:
            # Whatever SQLite says, the next use starts from fresh connections: a full disk, a lost
            # file and a corrupt page are all mended outside this process, and none needs a restart.
            with self._mutex:
                self._forget()
            cause = error.orig if isinstance(error, DBAPIError) else error
            raise InboxUnavailable(f"the inbox {self.path} failed: {cause}") from None
        except OSError as error:
            raise InboxUnavailable(f"the inbox {self.path} failed: {error.strerror}") from None

    def _same_file(self) -> None:
        """Let go of a file that was moved or replaced: SQLite would go on writing into the old one."""
        status = os.stat(self.path)  # noqa: PTH116 - half the cost of Path.stat, paid by every commit
        identity = (status.st_dev, status.st_ino)
        if identity != self._identity:
            with self._mutex:
                self._forget()
                self._identity = identity

    def _forget(self) -> None:
        with suppress(DBAPIError, sqlite3.Error):
            if self._writer is not None:
                self._writer.invalidate()
                self._writer.close()
        self._writer = None
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def _open(self) -> Engine:
        with self._mutex:
            if self._engine is None:
                engine = self._new_engine()
                with engine.connect().execution_options(billhook_read=True) as connection:
                    self._verify(connection)
                self._engine = engine
            return self._engine

    def _new_engine(self) -> Engine:
        engine = create_engine("sqlite+pysqlite://", creator=self._connect, poolclass=QueuePool, pool_size=4)
        event.listen(engine, "begin", _begin)
        return engine

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: a missing file is an error, never a new and empty inbox.
        connection = sqlite3.connect(
            f"file:{urllib.parse.quote(str(self.path))}?mode=rw",
            uri=True,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        facts = tuple(
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        )
        if facts != ("wal", 2):
            connection.close()
            raise sqlite3.OperationalError(f"journal_mode, synchronous are {facts}, need ('wal', 2)")
        return connection


_INSERT_NEW = (
    "INSERT INTO delivery (source, key, event_type, body, headers, signed_at, received_at, state) VALUES "
)
_INSERT_ROW = "(?, ?, ?, ?, ?, ?, ?, 'received')"
_UNLESS_STORED = " ON CONFLICT (source, key) DO NOTHING"


def _moment(moment: datetime | None) -> str | None:
    """A datetime as SQLAlchemy writes it to SQLite."""
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _begin(connection: Connection) -> None:
    # A deferred transaction that reads and then writes fails at once, whatever the busy timeout.
    reading = connection.get_execution_options().get("billhook_read")
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
