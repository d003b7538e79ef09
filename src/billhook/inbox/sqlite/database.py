"""The SQLite file behind an inbox: every commit is on the disk before it counts.

All that is particular to SQLite is here and in the modules that this one imports.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from billhook.errors import InboxUnavailable
from billhook.fork import reset_in_child
from billhook.inbox.records import NewDelivery
from billhook.inbox.sqlite.backup import Progress, back_up, restore
from billhook.inbox.sqlite.connections import Connections
from billhook.inbox.sqlite.driver import (
    begin,
    checkpoint_passive,
    checkpoint_truncate,
    execute_with_lock,
    insert_statement,
    new_engine,
)
from billhook.inbox.sqlite.fast_path import SqliteFastPath
from billhook.inbox.sqlite.file import SqliteFile, check_log_belongs, record_log_owner, refuse_foreign_file
from billhook.inbox.sqlite.fork_guard import FORK_GUARD
from billhook.inbox.sqlite.notifier import FifoNotifier
from billhook.inbox.sqlite.write_lock import WriteLock

__all__ = ["SqliteDatabase"]

CHECKPOINT_COMMITS = 256
"""Commits of one process between two checkpoints: a log of some 16 MB."""
_FAILURES = (DBAPIError, sqlite3.Error, OSError, MemoryError)


class SqliteDatabase:
    """Connections to one SQLite file, opened anew in every process. See billhook.inbox.database.Database."""

    schema = None
    is_remote = False
    """A file that cannot be opened at start is in a wrong place, or broken."""

    def __init__(
        self,
        path: str,
        busy_seconds: float,
        verify: Callable[[Connection], None],
        upgrade: Callable[[Connection], None],
        *,
        own_folder: bool = False,
    ) -> None:
        """`verify` is called in the first transaction of each opening and raises to refuse the file.

        A missing folder is created only if it is billhook's own, not if the user named it.
        """
        self.file = SqliteFile(Path(path).absolute())
        self.path = self.file.path
        self._busy_seconds = busy_seconds
        self._verify = verify
        self._upgrade = upgrade
        self._own_folder = own_folder
        self.fast_path = SqliteFastPath(self.read_raw, self.write_raw, self.checkpoint)
        self._parents_connections: list[Connections] = []
        self._reset()
        reset_in_child(self._reset_in_child)
        FORK_GUARD.before_fork(self._close_for_fork)

    def _reset(self) -> None:
        self._mutex = threading.RLock()
        self._commits = 0
        self._lock = WriteLock(self.file.beside("-lock"))
        self._connections = Connections(self.path, self._busy_seconds, self._verify, self._lock)
        self.notifier = FifoNotifier(self.file.beside("-wake"))

    def _reset_in_child(self) -> None:
        self._parents_connections.append(
            self._connections
        )  # kept open: closing them drops the parent's locks
        self._lock.close()
        self._reset()

    @property
    def display_url(self) -> str:
        """The file's path."""
        return str(self.path)

    def prepare(self) -> None:
        """Create the file where it is missing, and bring its schema up to date."""
        self.file.create(own_folder=self._own_folder)
        with self.migration_transaction() as connection:
            self._upgrade(connection)
        self.close()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that holds the write lock from its start; committed when the block ends."""
        with FORK_GUARD.at_work(), self._mutex, self._lock.held(), self._storage_errors():
            self._check_file()
            writer = self._connections.writer()
            with writer.begin():
                yield writer
            self._commits += 1

    def insert_new(self, rows: Sequence[NewDelivery]) -> Sequence[int]:
        """Commit the deliveries that are new, in one statement; see billhook.inbox.database.Database.

        Between the statements of a longer transaction the committer would have to win the interpreter's lock
        from the request threads, with the file locked all the while. Tried first without waiting; when
        another process writes, under the write lock.
        """
        statement, values = insert_statement(rows)
        with FORK_GUARD.at_work(), self._mutex:
            try:
                if self.file.changed(busy=len(rows) > 2):
                    self._reopen()
                inserter = self._connections.inserter or self._connections.open_inserter()
                cursor = execute_with_lock(inserter, statement, values, self._lock, self._busy_seconds)
            except _FAILURES as error:
                raise self._unavailable(error) from None
            self._commits += 1
        # SQLite's write lock was held for the whole statement, so the new ids are consecutive.
        last, count = cursor.lastrowid or 0, cursor.rowcount
        return range(last - count + 1, last + 1)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a consistent snapshot, for reading only; takes no lock."""
        with FORK_GUARD.at_work(), self._storage_errors():
            self._check_file()
            with self._mutex:
                engine = self._connections.engine()
            with (
                engine.connect().execution_options(billhook_read=True) as connection,
                connection.begin(),
            ):
                yield connection

    @contextmanager
    def read_raw(self) -> Iterator[sqlite3.Connection]:
        """Borrow a driver connection, for statements that each read by themselves; takes no lock."""
        with FORK_GUARD.at_work(), self._storage_errors():
            self._check_file(busy=True)
            with self._mutex:
                engine = self._connections.engine()
            with closing(engine.raw_connection()) as pooled:
                yield cast("sqlite3.Connection", pooled.driver_connection)

    @contextmanager
    def write_raw(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction as `write` does, on the driver's own connection."""
        with FORK_GUARD.at_work(), self._mutex, self._storage_errors():
            self._check_file(busy=True)
            driver = self._connections.inserter or self._connections.open_inserter()
            with self._lock.held(), driver:  # `driver` commits, or rolls back
                begin(driver, self._busy_seconds)
                yield driver
            self._commits += 1

    @contextmanager
    def migration_transaction(self) -> Iterator[Connection]:
        """Open a write transaction on a schema of any age."""
        with FORK_GUARD.at_work(), self._mutex, self._lock.held(), self._storage_errors():
            self._check_file()
            refuse_foreign_file(self.path)
            engine = new_engine(self.path, self._busy_seconds, foreign_keys=False)
            try:
                with engine.begin() as connection:
                    record_log_owner(self.path)
                    yield connection
            finally:
                engine.dispose()

    def former_schema(self) -> None:
        """Return None: SQLite has no schemas."""

    def create_or_move_schema(self, connection: Connection) -> None:
        """Do nothing: SQLite has no schemas."""

    def back_up(self, target: Path, progress: Progress) -> int:
        """See billhook.inbox.sqlite.backup.back_up."""
        with FORK_GUARD.at_work(), self._mutex, self._storage_errors():
            self._check_file()
            refuse_foreign_file(self.path)
        return back_up(self.path, target, self._busy_seconds, progress)

    def restore(self, backup: Path, progress: Progress) -> int:
        """See billhook.inbox.sqlite.backup.restore. This process must not have the inbox open."""
        return restore(self.path, backup, progress)

    def checkpoint(self, *, at_once: bool = False) -> None:
        """Move the log into the file every CHECKPOINT_COMMITS commits; `at_once`: now, and empty the log.

        Never waits for other readers and writers: the next call tries again.
        """
        if at_once:
            with suppress(sqlite3.Error, OSError), FORK_GUARD.at_work(), self._mutex, self._lock.held():
                self._check_file()
                checkpoint_truncate(self.path, busy_seconds=0)
                self._commits = 0
        elif self._commits >= CHECKPOINT_COMMITS:
            with suppress(InboxUnavailable), self.write():
                self._commits = 0
                checkpoint_passive(self.path)

    def close(self) -> None:
        """Close every connection of this process; the next use opens them again. Call before a fork."""
        with FORK_GUARD.at_work(), self._mutex:
            self._connections.discard()
            self._lock.close()
            self.notifier.close()

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except _FAILURES as error:
            raise self._unavailable(error) from None

    def _unavailable(self, error: BaseException) -> InboxUnavailable:
        # The next use opens new connections: a full disk, a lost file and a corrupt page are mended outside
        # this process, and none of them should need a restart of it.
        self._discard_connections()
        cause = error.orig if isinstance(error, DBAPIError) else str(error) or type(error).__name__
        return InboxUnavailable(f"the inbox {self.path} failed: {cause}")

    def _check_file(self, busy: bool = False) -> None:
        if self.file.changed(busy):
            self._reopen()

    def _reopen(self) -> None:
        """Use new connections: another file has taken the path, and SQLite would write into the old one."""
        self._discard_connections()
        try:
            check_log_belongs(self.path)
        except OSError:
            self.file.forget()  # the next use checks again: the user may have removed the log
            raise

    def _close_for_fork(self) -> None:
        self._connections.close()

    def _discard_connections(self) -> None:
        with self._mutex:
            self._connections.discard()
