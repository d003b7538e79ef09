"""SQLite's driver: connect, begin, checkpoint, the connections of one process, and two locks.

SQLite lacks these locks: between processes that write, and between a fork and work in progress.

Writing: the kernel passes its lock on at once, where SQLite would sleep and retry.

Forking: SQLite keeps the file locks of a process in its memory, by file, for all of its connections. A forked
child gets a copy: what another thread of its parent was reading at that moment stays locked there for ever,
for the connections that the child itself opens too. So a fork waits for the work in progress and closes the
open connections; the next use opens them again.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakMethod

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from billhook.basics.concurrency import around_fork
from billhook.basics.file_modes import open_own
from billhook.errors import InboxUnavailable
from billhook.inbox.sqlite.dialect import SQLITE
from billhook.inbox.sqlite.file import beside, record_log_owner, refuse_foreign_file, rewrite, sync
from billhook.inbox.sqlite.library import sqlite3
from billhook.inbox.tables.dialect import with_own
from billhook.inbox.tables.revision import verify_opened

_LOCKS = Path("/proc/locks")


class Holding:
    """Whether this process holds the write lock of a file: a worker's watchdog asks, and is notified."""

    def __init__(self) -> None:
        self.now = False
        self.changed: Callable[[], object] | None = None
        """Called in the thread that holds the lock, after it took it and before it releases it."""

    def set(self, now: bool) -> None:
        """Note that the lock is held, or about to be released."""
        self.now = now
        if self.changed is not None:
            self.changed()


HOLDING = Holding()


class WriteLock:
    """flock on a file beside the inbox; the kernel releases it when its process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._identity: tuple[int, int, int] | None = None
        """The lock file's device, as two numbers, and inode: later looks must not wait for the disk."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock in the block. Raises InboxUnavailable when the lock file cannot be opened."""
        try:
            if self._descriptor is None:
                # Not through a link, which would make this process create or lock any file of its user's.
                self._descriptor = open_own(self._path)
                status = os.fstat(self._descriptor)
                self._identity = os.major(status.st_dev), os.minor(status.st_dev), status.st_ino
            # Without a time limit: its holder has SQLite's lock for one transaction, or dies and frees both.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise InboxUnavailable(f"the lock {self._path} failed: {error.strerror}") from None
        try:
            HOLDING.set(True)
            yield
        finally:
            try:
                HOLDING.set(False)
            finally:  # also if the notified fails: no other process could write any more
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def holder(self) -> int | None:
        """Return the id of the process that holds the lock; None if none does, or it is not told.

        Source: proc_locks(5), of Linux alone; it hides processes outside of this container.
        """
        if self._identity is None:
            return None
        try:
            lines = _LOCKS.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError, MemoryError):
            return None
        major, minor, inode = self._identity
        for line in lines:
            # `1: FLOCK ADVISORY WRITE 4711 fe:01:1234 0 EOF`; one that waits has `->` after the number.
            parts = line.split()
            if len(parts) < 6 or parts[1] != "FLOCK" or not parts[5].endswith(f":{inode}"):
                continue
            # Layered file systems tell another device there than stat() does; it has no major number.
            if parts[5].startswith((f"{major:02x}:{minor:02x}:", "00:")) and int(parts[4]) > 0:
                return int(parts[4])
        return None

    def close(self) -> None:
        """Close this process's descriptor. After a fork too: a child's copy would keep the lock held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_LONGEST_SECONDS = 3.0
"""Longer than any response may take: work that takes longer hangs, and a fork must not hang with it."""


class _Depth(threading.local):
    """How many blocks of `at_work` this thread is in."""

    value = 0


class ForkGuard:
    """Counts the threads at work with SQLite: one guard for all files, as a fork copies them all."""

    def __init__(self) -> None:
        self._closers: list[WeakMethod[Callable[[], None]]] = []
        self._depth = _Depth()
        self.reset()

    def reset(self) -> None:
        """Start over: a child has no other thread."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._forking = False
        self._inside = int(self._depth.value > 0)

    def before_fork(self, close: Callable[[], None]) -> None:
        """Call this method before each fork, while no thread is at work; held weakly."""
        self._closers = [closer for closer in self._closers if closer() is not None] + [WeakMethod(close)]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Hold forks back during the block; wait for a fork that is in progress."""
        depth = self._depth.value
        if not depth:
            with self._lock:  # by itself, as the condition's own methods would take most of the time
                if self._forking:
                    self._changed.wait_for(lambda: not self._forking, _LONGEST_SECONDS)
                self._inside += 1
        self._depth.value = depth + 1
        try:
            yield
        finally:
            self._depth.value = depth
            # By depth: the blocks of one thread may nest, and only the outermost one counts.
            if not depth:
                with self._lock:
                    self._inside -= 1
                    if self._forking:
                        self._changed.notify_all()

    def before(self) -> None:
        """Wait until no thread is at work, and keep it so. Called in the thread that forks."""
        # A thread may fork in the middle of its own work: it must not wait for itself, and nothing is closed.
        own = int(self._depth.value > 0)
        with self._changed:
            self._forking = True
            quiet = self._changed.wait_for(lambda: self._inside <= own, _LONGEST_SECONDS)
        if quiet and not own:
            for close in [closer() for closer in self._closers]:
                if close is not None:
                    close()

    def after_in_parent(self) -> None:
        """Release the threads that wait for the fork to be over."""
        with self._changed:
            self._forking = False
            self._changed.notify_all()


FORK_GUARD = ForkGuard()
around_fork(FORK_GUARD.before, FORK_GUARD.after_in_parent, FORK_GUARD.reset)


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


def checkpoint(path: Path, mode: str) -> bool:
    """Move the log into the file; the caller must hold the write lock.

    `PASSIVE`, or `TRUNCATE` to empty it too: False while a reader still needs it; waits for no other process.
    SQLite before 3.51.3 may corrupt the file when a checkpoint meets a commit of another process (its
    WAL-reset bug): this is why automatic checkpoints are off. Raises sqlite3.Error.
    """
    with closing(connect(path, busy_seconds=0)) as connection:
        busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return not busy


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
        checkpoint(path, "TRUNCATE")
    except sqlite3.OperationalError as error:
        raise_unless_busy(error)  # another process opens it at this moment: what the log holds is on the disk


def raise_unless_busy(error: sqlite3.OperationalError) -> None:
    """Return if another connection has the file locked. Raises any other `error`."""
    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:  # extended codes have more bits
        raise error


class _ClosingPool(QueuePool):
    """A pool that, once disposed of, closes a connection that comes back: SQLAlchemy's keeps it open."""

    # SQLAlchemy logs what a pool does under this name; billhook's own loggers are shown from INFO on.
    __module__ = QueuePool.__module__

    def dispose(self) -> None:
        """Close its connections; those in use when they come back."""
        self._do_return_conn = self._close_returned  # type: ignore[method-assign]
        super().dispose()

    def _close_returned(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        super().dispose()


def new_engine(path: Path, busy_seconds: float, *, foreign_keys: bool = True) -> Engine:
    """Create SQLAlchemy's engine, with connections made by `connect`.

    A migration that recreates a table needs `foreign_keys` off: dropping the old table would else delete the
    rows that refer to it.
    """
    creator = partial(connect, path, busy_seconds, foreign_keys=foreign_keys)
    engine = create_engine("sqlite+pysqlite://", module=sqlite3, creator=creator, poolclass=_ClosingPool)
    with_own(engine.dialect, SQLITE, str(path))
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
        try:
            with engine.connect().execution_options(billhook_read=True) as connection:
                verify_opened(connection)
        except BaseException:
            engine.dispose()
            raise
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
