"""The SQLite file behind an inbox: every commit is on the disk before it counts.

What is special about SQLite is here and in the modules that this one imports, and nowhere else.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from billhook.errors import InboxUnavailable
from billhook.inbox.forking import SETTING_UP
from billhook.inbox.records import Incoming
from billhook.inbox.sqlite.bell import Bell
from billhook.inbox.sqlite.copies import Progress, back_up, restore
from billhook.inbox.sqlite.driver import (
    begin,
    begin_log_anew,
    checkpoint,
    execute_in_turn,
    insertion,
    new_engine,
    new_ids,
)
from billhook.inbox.sqlite.express import SqliteExpress
from billhook.inbox.sqlite.file import SqliteFile
from billhook.inbox.sqlite.opened import Opened
from billhook.inbox.sqlite.others import refuse_others
from billhook.inbox.sqlite.pairing import check_pair, note_pair
from billhook.inbox.sqlite.quiet import QUIET
from billhook.inbox.sqlite.writelock import WriteLock

__all__ = ["SqliteDatabase"]

CHECKPOINT_COMMITS = 256
"""Commits of one process between two checkpoints: a log of some 16 MB."""


class SqliteDatabase:
    """Connections to one SQLite file, built anew in every process."""

    schema = None
    may_return = False
    """A file that cannot be opened at the start is in a wrong place, or broken."""

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

        A folder that is missing is made only if it is billhook's own, and not one that somebody named.
        """
        self.file = SqliteFile(Path(path).absolute())
        self.path = self.file.path
        self._busy_seconds = busy_seconds
        self._verify = verify
        self._upgrade = upgrade
        self._own_folder = own_folder
        self.express = SqliteExpress(self)
        self._forked: list[object] = []
        self._start_over()
        QUIET.closes(self._close_for_a_fork)

    def _start_over(self) -> None:
        self._mutex = threading.RLock()
        self._commits = 0
        self._lock = WriteLock(self.file.beside("-lock"))
        self._opened = Opened(self.path, self._busy_seconds, self._verify, self._lock)
        self.bell = Bell(self.file.beside("-wake"))
        self._pid = os.getpid()  # last: whoever sees it uses what is above

    def _own(self) -> None:
        """After a fork, leave the parent's connections alone: closing them here would drop its locks."""
        if self._pid != os.getpid():
            with SETTING_UP:
                if self._pid != os.getpid():  # pragma: no branch - another thread was first
                    self._forked.append(self._opened)
                    self._lock.close()
                    self._start_over()

    @property
    def place(self) -> str:
        """The file's path."""
        return str(self.path)

    def prepare(self) -> None:
        """Make the file where it is missing, and bring its schema up to date."""
        self.file.create(own_folder=self._own_folder)
        with self.write_unverified() as connection:
            self._upgrade(connection)
        self.close()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that holds the write lock from its start; committed when the block ends.

        Raises InboxUnavailable when the storage fails, and has then rolled back.
        """
        self._own()
        with QUIET.at_work(), self._mutex, self._lock.held(), self._storage_errors():
            self._same_file()
            writer = self._opened.writer()
            with writer.begin():
                yield writer
            self._commits += 1

    def insert_new(self, rows: Sequence[Incoming]) -> Sequence[int]:
        """Commit the deliveries that are new; see billhook.inbox.database.Database.

        One statement, one step: between those of a longer transaction the interpreter's lock would have
        to be won from the request threads, with the file locked all the while. Tried first without
        waiting; when somebody else writes, in turn.
        """
        statement, values = insertion(rows)
        self._own()
        with QUIET.at_work(), self._mutex, self._storage_errors():
            self._same_file(busy=len(rows) > 2)
            inserter = self._opened.inserter()
            cursor = execute_in_turn(inserter, statement, values, self._lock, self._busy_seconds)
            self._commits += 1
        return new_ids(cursor)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent snapshot, for reading only; takes no lock."""
        self._own()
        with QUIET.at_work(), self._storage_errors():
            self._same_file()
            with self._mutex:
                engine = self._opened.engine()
            with (
                engine.connect().execution_options(billhook_read=True) as connection,
                connection.begin(),
            ):
                yield connection

    @contextmanager
    def glance(self) -> Iterator[sqlite3.Connection]:
        """The driver's own connection, for statements that read, each by itself; takes no lock."""
        self._own()
        with QUIET.at_work(), self._storage_errors():
            self._same_file(busy=True)
            with self._mutex:
                engine = self._opened.engine()
            with closing(engine.raw_connection()) as pooled:
                yield cast("sqlite3.Connection", pooled.driver_connection)

    @contextmanager
    def direct(self) -> Iterator[sqlite3.Connection]:
        """As `write`, with the driver's own connection."""
        self._own()
        with QUIET.at_work(), self._mutex, self._storage_errors():
            self._same_file(busy=True)
            driver = self._opened.inserter()
            with self._lock.held(), driver:  # which commits, or rolls back
                begin(driver, self._busy_seconds)
                yield driver
            self._commits += 1

    @contextmanager
    def write_unverified(self) -> Iterator[Connection]:
        """A write transaction on a schema of any age, for the migrations."""
        self._own()
        with QUIET.at_work(), self._mutex, self._lock.held(), self._storage_errors():
            self._same_file()
            refuse_others(self.path)
            engine = new_engine(self.path, self._busy_seconds, foreign_keys=False)
            try:
                with engine.begin() as connection:
                    note_pair(self.path)
                    yield connection
            finally:
                engine.dispose()

    def former(self) -> None:
        """None: the file is the place."""

    def move_in(self, connection: Connection) -> None:
        """Nothing: see `former`."""

    def back_up(self, target: Path, progress: Progress) -> int:
        """See billhook.inbox.sqlite.copies.back_up."""
        self._own()
        with QUIET.at_work(), self._mutex, self._storage_errors():
            self._same_file()
            refuse_others(self.path)
        return back_up(self.path, target, self._busy_seconds, progress)

    def restore(self, backup: Path, progress: Progress) -> int:
        """See billhook.inbox.sqlite.copies.restore. This process must not have the inbox open."""
        return restore(self.path, backup, progress)

    def tidy(self, *, at_once: bool = False) -> None:
        """Move the log into the file now and then, while nobody can write; `at_once`: and empty it.

        Whoever reads or writes just then is not waited for: the next call comes to it.
        """
        if at_once:
            with suppress(sqlite3.Error, OSError), QUIET.at_work(), self._mutex, self._lock.held():
                self._same_file()
                begin_log_anew(self.path, busy_seconds=0)
                self._commits = 0
        elif self._commits >= CHECKPOINT_COMMITS:
            with suppress(InboxUnavailable), self.write():
                self._commits = 0
                checkpoint(self.path)

    def close(self) -> None:
        """Close every connection of this process; the next use opens them again. Call before a fork."""
        self._own()
        with QUIET.at_work(), self._mutex:
            self._forget()
            self._lock.close()
            self.bell.close()

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, sqlite3.Error, OSError, MemoryError) as error:
            # The next use starts afresh: a full disk, a lost file and a corrupt page are mended outside
            # this process, and none of them needs it to restart.
            self._forget()
            cause = error.orig if isinstance(error, DBAPIError) else str(error) or type(error).__name__
            raise InboxUnavailable(f"the inbox {self.path} failed: {cause}") from None

    def _same_file(self, busy: bool = False) -> None:
        if self.file.changed(busy):
            self._forget()
            try:
                check_pair(self.path)
            except OSError:
                self.file.forget()  # the next use looks again, whether somebody has mended it
                raise

    def _close_for_a_fork(self) -> None:
        if self._pid == os.getpid():
            self._opened.close()

    def _forget(self) -> None:
        with self._mutex:
            self._opened.forget()
