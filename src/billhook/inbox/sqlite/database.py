"""The SQLite file behind an inbox: every commit is on the disk before it counts.

All that is particular to SQLite is here and in the modules that this one imports.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC
from math import inf
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from billhook.basics.concurrency import reset_in_child
from billhook.errors import InboxUnavailable
from billhook.inbox.sqlite.backup import Progress, back_up, check_backup, restore
from billhook.inbox.sqlite.driver import (
    FORK_GUARD,
    Connections,
    WriteLock,
    checkpoint,
    execute_until_deadline,
    new_engine,
    raise_unless_busy,
    take_over_log,
)
from billhook.inbox.sqlite.facts import SqliteFacts, file_bytes, read_facts
from billhook.inbox.sqlite.file import (
    beside,
    check_log_belongs,
    create,
    record_log_owner,
    refuse_foreign_file,
)
from billhook.inbox.sqlite.library import sqlite3
from billhook.inbox.sqlite.waker import FifoWaker
from billhook.inbox.tables.database import Database
from billhook.inbox.tables.records import NewDelivery
from billhook.inbox.tables.revision import MAY_STORE, prepare_schema, verify

CHECKPOINT_COMMITS = 256
"""Commits of one process between two checkpoints: a log of some 16 MB."""
LARGE_LOG_BYTES = 64 * 1024 * 1024
EMPTY_SECONDS = 60.0
"""The time between two emptyings of a large log. While one grows again each commit takes longer, and under
heavy load, or with large bodies, that is its usual size."""
CHECK_SECONDS = 0.1
"""Under load, the time between two looks at which file is there."""
_FULL_BYTES = 1024 * 1024
_FAILURES = (DBAPIError, sqlite3.Error, OSError, MemoryError)
_INSERT_NEW = (
    "INSERT INTO delivery "
    "(source, key, event_type, body, digest, headers, signed_at, received_at, state, type_field)"
    " VALUES "
)
_INSERT_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, 'received', ?)"
_UNLESS_STORED = " ON CONFLICT (source, key, variant) DO NOTHING"


class SqliteDatabase(Database):
    """Connections to one SQLite file, opened anew in every process. See inbox.tables.database.Database."""

    path: Path
    may_be_away = False
    """A file that cannot be opened at start is in a wrong place, or broken."""
    waits_in_c = True
    keeps_entries = writes_overlap = False
    plan_rows, prune_rows = 200, 150  # receivers wait for the one writer
    has_own_clock = False

    def __init__(
        self,
        path: str,
        busy_seconds: float,
        *,
        own_folder: bool = False,
    ) -> None:
        """Create a missing folder only if it is billhook's own, not if the user named it."""
        self.path = Path(path).absolute()
        self._busy_seconds = busy_seconds
        self._own_folder = own_folder
        self.waker = FifoWaker(beside(self.path, "-wake.d"))
        self._parents_connections: list[Connections] = []
        self._reset()
        reset_in_child(self._reset_in_child)
        FORK_GUARD.before_fork(self._close_for_fork)

    def _reset(self) -> None:
        self._mutex = threading.RLock()
        self._commits = 0
        self.commit_seconds = 0.0
        self._file_id: tuple[int, int] | None = None
        self._checked_at = 0.0
        self._emptied_at = -inf
        self._lock = WriteLock(beside(self.path, "-lock"))
        self._connections = Connections(self.path, self._busy_seconds, self._lock)

    def _reset_in_child(self) -> None:
        # Kept open: to close one file of the parent's would drop all of its locks on that file.
        self._parents_connections.append(self._connections)
        self._lock.close()
        self._reset()

    @property
    def after_commit(self) -> Sequence[Callable[[], None]]:
        """What is called after each batch of deliveries: it wakes the engines, and tends the log."""
        return (self.waker.wake, self.checkpoint)

    @property
    def display_url(self) -> str:
        """The file's path."""
        return str(self.path)

    @property
    def is_missing(self) -> bool:
        """Whether there is no such file."""
        return not self.path.is_file()

    def prepare(self) -> None:
        """Create the file where it is missing, and bring its schema up to date."""
        create(self.path, own_folder=self._own_folder)
        with self.migration_transaction() as connection:
            prepare_schema(connection)
        self.close()

    def write_lock_holder(self) -> int | None:
        """Return the id of the process that holds the write lock; None if none does, or it is unknown."""
        return self._lock.holder()

    # The order of the locks is always: fork guard, this process's mutex, the lock between processes. The
    # file is checked last: until the lock is held, `restore` may replace it.

    @contextmanager
    def write(self, *, storing: bool = False) -> Iterator[Connection]:
        """Open a transaction that holds the write lock from its start; committed when the block ends."""
        with FORK_GUARD.at_work(), self._mutex, self._lock.held(), self._checked():
            writer = self._connections.writer or self._connections.open_writer()
            with writer.begin():
                verify(writer.connection.cursor().execute, storing=storing)
                yield writer
                began = time.monotonic()
            self.commit_seconds = time.monotonic() - began
            self._commits += 1
        if self._commits >= CHECKPOINT_COMMITS:
            self.checkpoint()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the write lock from before it is decided what to write until that is committed."""
        with FORK_GUARD.at_work(), self._mutex, self._lock.held():
            yield

    def insert_new(self, rows: Sequence[NewDelivery]) -> Sequence[int]:
        """Commit the deliveries that are new, in one statement; see billhook.inbox.tables.database.Database.

        Between the statements of a longer transaction the committer would have to win the interpreter's lock
        from the request threads, with the file locked all the while. It holds the lock of all
        processes, as every write does: a checkpoint of another process must not run beside it. SQLite's own
        lock is waited for only where another program has it.
        """
        values: list[object] = []
        for row in rows:
            # As utc_text() writes them: its calls would be a measurable part of a single delivery's time.
            received_at = row.received_at.astimezone(UTC).isoformat(" ", "microseconds")[:26]
            signed_at = row.signed_at and row.signed_at.astimezone(UTC).isoformat(" ", "microseconds")[:26]
            values += (row.source, row.key, row.event_type, row.body, row.digest, row.headers)
            values += (signed_at, received_at, row.type_field)
        statement = _INSERT_NEW + ",".join([_INSERT_ROW] * len(rows)) + _UNLESS_STORED
        with FORK_GUARD.at_work(), self._mutex:
            # Not by `_checked`: a context manager more is a measurable part of a single delivery's time.
            try:
                self._check_file(busy=len(rows) > 2)
                inserter = self._connections.inserter or self._connections.open_inserter()
                with self._lock.held():  # by migrations too
                    if inserter.execute(MAY_STORE).fetchone() is None:
                        verify(inserter.execute, storing=True)  # raises
                    try:
                        cursor = inserter.execute(statement, values)
                    except sqlite3.OperationalError as error:
                        raise_unless_busy(error)
                        cursor = execute_until_deadline(inserter, statement, values, self._busy_seconds)
            except _FAILURES as error:
                raise self._unavailable(error) from None
            self._commits += 1
        # SQLite's write lock was held for the whole statement, so the new ids are consecutive.
        last, count = cursor.lastrowid or 0, cursor.rowcount
        return range(last - count + 1, last + 1)

    @contextmanager
    def read(self, *, storing: bool = False, checked: bool = True) -> Iterator[Connection]:
        """Open a consistent snapshot, for reading only; takes no lock."""
        del checked
        with FORK_GUARD.at_work(), self._checked():
            engine = self._connections.engine or self._open_engine()
            with (
                engine.connect().execution_options(billhook_read=True) as connection,
                connection.begin(),
            ):
                # In any case: within the process it costs no round trip.
                verify(connection.connection.cursor().execute, storing=storing)
                yield connection

    def _open_engine(self) -> Engine:
        # Only here: the committer holds the mutex while it waits for the disk, and a read need not.
        with self._mutex:
            return self._connections.engine or self._connections.open_engine()

    @contextmanager
    def migration_transaction(self) -> Iterator[Connection]:
        """Open a write transaction on a schema of any age."""
        with FORK_GUARD.at_work(), self._mutex, self._lock.held(), self._checked():
            refuse_foreign_file(self.path)
            take_over_log(self.path, self._busy_seconds)
            engine = new_engine(self.path, self._busy_seconds, foreign_keys=False)
            try:
                with engine.begin() as connection:
                    record_log_owner(self.path)
                    yield connection
            finally:
                engine.dispose()

    def facts(self) -> SqliteFacts:
        """Read the facts of the file."""
        with self.read() as connection:
            return read_facts(connection, self.path)

    def free_bytes(self) -> tuple[int, int]:
        """Return how many bytes are free beside the file, and its size with its log."""
        return shutil.disk_usage(self.path.parent).free, file_bytes(self.path)

    def back_up(self, target: Path, progress: Progress) -> int:
        """Copy the inbox into a new file: see billhook.inbox.sqlite.backup.back_up."""
        with FORK_GUARD.at_work(), self._mutex, self._checked():
            refuse_foreign_file(self.path)
        return back_up(self.path, target, self._busy_seconds, progress)

    def check_restore(self, backup: Path) -> None:
        """Raise ConfigError for a file that is no backup."""
        check_backup(self.path, backup)

    def restore(self, backup: Path, progress: Progress) -> int:
        """Replace the inbox by a backup: see billhook.inbox.sqlite.backup.restore.

        This process must not have the inbox open.
        """
        return restore(self.path, backup, progress)

    def checkpoint(self, *, at_once: bool = False) -> None:
        """Move the log into the file every CHECKPOINT_COMMITS commits; `at_once`: now, and empty the log.

        A large log, which a long read leaves behind, is emptied too. Never waits for other readers and
        writers: the next call tries again.
        """
        due = self._commits >= CHECKPOINT_COMMITS
        if at_once or (due and self._should_empty_log()):
            with suppress(*_FAILURES, InboxUnavailable), FORK_GUARD.at_work(), self._mutex, self._lock.held():
                self._commits = 0
                self._check_file()
                if checkpoint(self.path, "TRUNCATE"):
                    self._emptied_at = time.monotonic()
        elif due:
            with suppress(InboxUnavailable), self.write(storing=True):
                self._commits = 0  # first: the end of this very transaction must not ask for another one
                checkpoint(self.path, "PASSIVE")

    def _should_empty_log(self) -> bool:
        if time.monotonic() - self._emptied_at < EMPTY_SECONDS:
            return False
        return self.log_bytes() > LARGE_LOG_BYTES

    def log_bytes(self) -> int:
        """Return the size of the log, which is beside the file itself where the path is a link."""
        with suppress(OSError):
            return beside(self.path.resolve(), "-wal").stat().st_size
        return 0

    def close(self) -> None:
        """Close every connection of this process; the next use opens them again. Call before a fork."""
        with FORK_GUARD.at_work(), self._mutex:
            self._connections.close()
            self._lock.close()
            self.waker.close()

    @contextmanager
    def _checked(self, busy: bool = False) -> Iterator[None]:
        """Use the file that is at the path now. Raises InboxUnavailable for any failure in the block."""
        try:
            self._check_file(busy)
            yield
        except _FAILURES as error:
            raise self._unavailable(error) from None

    def _check_file(self, busy: bool = False) -> None:
        """Close the connections if another file has taken the path: SQLite would write into the old one.

        Under load one check in CHECK_SECONDS is enough: the call releases the interpreter's lock, which then
        takes longer to get back than the commit itself. Raises OSError when there is no file, or another with
        the log of the old one.
        """
        now = time.monotonic()
        if busy and now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        status = os.stat(self.path)  # noqa: PTH116 - half the cost of Path.stat, paid by every commit
        before, self._file_id = self._file_id, (status.st_dev, status.st_ino)
        if before == self._file_id:
            return
        with self._mutex:
            self._connections.close()
        try:
            check_log_belongs(self.path)
        except OSError:
            # The next use checks again: the user may have removed the log.
            self._file_id, self._checked_at = None, 0.0
            raise

    def _unavailable(self, error: BaseException) -> InboxUnavailable:
        # The next use opens new connections: a full disk, a lost file and a corrupt page are mended outside
        # this process, and none of them should need a restart of it.
        full = ""  # SQLite often calls it an I/O error; looked at first: closing may delete the log
        with suppress(OSError):
            free = shutil.disk_usage(self.path.parent).free
            if free < _FULL_BYTES:
                full = f"; {free // 1024} KiB are free on its disk: free some space"
        with self._mutex:
            self._connections.close()
        cause = error.orig if isinstance(error, DBAPIError) else str(error) or type(error).__name__
        return InboxUnavailable(f"the inbox {self.path} failed: {cause}{full}")

    def _close_for_fork(self) -> None:
        self._connections.close()
