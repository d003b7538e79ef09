"""The sandbox's database: its URL, its tables, its lock, its transactions, and named values in it.

The lock gives one sandbox at a time the use of a file: two would send every webhook twice, and each has its
own clock. It ends with the process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from billhook.basics.file_modes import open_own
from billhook.errors import ConfigError
from billhook.fields import strict_json
from billhook.sandbox.clock import SandboxClock
from billhook.sandbox.options import SandboxOptions
from billhook.sandbox.storage.columns import ExactMax, ExactSum, metadata, number_text
from billhook.sandbox.storage.tables import setting

_FORM = "sqlite:///FILE, or sqlite:// for a temporary file"
_APPLICATION_ID = int.from_bytes(b"bhsb")
"""Marks a file as a sandbox's."""


def new_id(prefix: str) -> str:
    """Return a random unique id such as `cus_4f0e…`."""
    return f"{prefix}_{secrets.token_hex(10)}"


class Transaction:
    """A database transaction with the time at which all of its changes happen.

    `now` is the sandbox clock's time, constant throughout the transaction; `real_now` is the machine's, by
    which deliveries are signed and retried.
    """

    def __init__(
        self, connection: sa.Connection, now: datetime, real_now: datetime, options: SandboxOptions
    ) -> None:
        self.connection, self.now, self.real_now, self.options = connection, now, real_now, options
        self.execute, self.scalar, self.scalars = connection.execute, connection.scalar, connection.scalars
        # What runs in it, as the log of events notes it: method and path of an operation, or a job and its
        # subject.
        self.cause = "start"
        # True if deliveries became due, or a job was scheduled: who waits for them is woken after the commit.
        self.enqueued = self.scheduled = False

    def any(self, table: sa.Table, *where: sa.ColumnElement[bool]) -> bool:
        """Return whether the table has a row that matches."""
        query = sa.select(sa.literal(1)).select_from(table).where(*where).limit(1)
        return self.execute(query).first() is not None

    def setting(self, name: str) -> Any:
        """Return the value stored under `name`, with all its digits; None if there is none."""
        text = self.scalar(sa.select(setting.c.value).where(setting.c.name == name))
        return None if text is None else strict_json.loads(text.encode())

    def store_setting(self, name: str, value: object) -> None:
        """Store `value` under `name`, as JSON, replacing another; None deletes it."""
        if value is None:
            self.execute(sa.delete(setting).where(setting.c.name == name))
        else:
            text = strict_json.dumps(value).decode()
            self.execute(sa.insert(setting).prefix_with("OR REPLACE").values(name=name, value=text))


def _lock(path: Path) -> int:
    """Lock a SQLite file for this process and return the lock's descriptor, whose closing releases it.

    ConfigError if another sandbox holds it; OSError if no lock file can be made.
    """
    descriptor = open_own(path.with_name(path.name + ".lock"))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            "another sandbox is using this database: stop it, or give this one a database of its own"
        ) from None
    return descriptor


@contextmanager
def opening() -> Iterator[None]:
    """Turn database and file errors of the block into a ConfigError of one line."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        why: object = error
        if isinstance(error, DBAPIError):
            why = error.orig
        elif isinstance(error, OSError):
            why = error.strerror
        raise ConfigError(f"the sandbox's database cannot be opened: {' '.join(str(why).split())}") from None


def open_engine(url: str) -> sa.Engine:
    """Return an engine for the URL; ConfigError if it cannot be opened or holds other tables.

    A database with other tables is left unchanged, and nothing is written beside it.
    """
    parsed = parsed_url(url)
    with opening():
        try:
            connect_args = {"timeout": 30, "check_same_thread": False}
            engine = sa.create_engine(parsed, hide_parameters=True, connect_args=connect_args)
            # Readable by its owner only: it holds keys.
            with suppress(FileExistsError):
                file_of(parsed).touch(mode=0o600, exist_ok=False)
            # Checked on a connection without the listeners below, which would write beside the file.
            try:
                with engine.connect() as connection:
                    _is_empty(connection)
            finally:
                engine.dispose()
        except (ArgumentError, TypeError, ValueError) as error:
            raise ConfigError(f"the sandbox's database URL cannot be used: {error}") from None
    sa.event.listen(engine, "connect", _on_connect)
    sa.event.listen(engine, "begin", _on_begin)
    return engine


def file_of(url: URL) -> Path:
    """Return the SQLite file with symbolic links resolved, so that one file has one lock."""
    path = url.database
    if not path or path == ":memory:" or path.startswith("file:"):
        raise ConfigError(
            "the sandbox's database URL must name a file, sqlite:///FILE; sqlite:// takes a temporary one"
        )
    return Path(path).resolve()


def parsed_url(url: str) -> URL:
    """Parse a database URL; ConfigError, whose text repeats no part of it, since it may hold a password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError for a port that is not a number
        raise ConfigError(f"the sandbox's database URL cannot be read: write {_FORM}") from None
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise ConfigError(f"the sandbox's database is a SQLite file: write {_FORM}")
    return parsed


def _on_connect(connection: Any, _: object) -> None:
    connection.isolation_level = None  # the "begin" listener sends BEGIN
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.create_aggregate("exact_sum", 1, ExactSum)
    connection.create_aggregate("exact_max", 1, ExactMax)
    connection.create_function("number_text", 1, number_text, deterministic=True)


def _on_begin(connection: sa.Connection) -> None:
    # BEGIN IMMEDIATE locks at once: a read transaction that is upgraded later may fail with SQLITE_BUSY.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _is_empty(connection: sa.Connection) -> bool:
    """Return True if there are no tables; ConfigError if they are not those of this version."""
    if not sa.inspect(connection).get_table_names():
        return True
    if connection.exec_driver_sql("PRAGMA application_id").scalar() != _APPLICATION_ID:
        raise ConfigError(
            "the sandbox's database holds tables of something else: give the sandbox a file of its own"
        )
    if connection.exec_driver_sql("PRAGMA user_version").scalar() != _version():
        raise ConfigError(
            "the sandbox's database was made by another version of billhook: give another file, or delete it"
        )
    return False


def _version() -> int:
    # Of the DDL itself: any change of a table or an index is another version.
    return int.from_bytes(hashlib.sha256("\n".join(sorted(_ddl())).encode()).digest()[:4], signed=True)


@cache
def _ddl() -> Sequence[str]:
    """Return the statements that create the tables and their indexes."""
    tables, form = metadata.sorted_tables, sqlite.dialect()
    indexes = [CreateIndex(index).compile(dialect=form) for table in tables for index in table.indexes]
    return [*(str(CreateTable(table).compile(dialect=form)) for table in tables), *map(str, indexes)]


class Service:
    """The database, clock and options that all parts of the sandbox share. It imports none of those parts.

    The database is locked for this sandbox. One transaction writes at a time, so that rules may read before
    they write. `after_commit` is called with each transaction that was committed.
    """

    def __init__(
        self, options: SandboxOptions, clock: SandboxClock, after_commit: Callable[[Transaction], None]
    ) -> None:
        """Open, lock and if need be create the database; ConfigError if it cannot be used."""
        self.options = options
        self.clock = clock
        self._after_commit = after_commit
        self._folder = None
        self._lock: int | None = None
        url = options.database_url
        if url == "sqlite://":
            self._folder = tempfile.TemporaryDirectory(prefix="billhook-sandbox-")
            url = f"sqlite:///{self._folder.name}/sandbox.db"
        self._next_writer, self._writer = threading.Lock(), threading.Lock()
        self._engine = open_engine(url)
        try:
            with opening():
                self._lock = _lock(file_of(self._engine.url))
                with self._connection(writes=True) as connection:
                    if _is_empty(connection):
                        marks = f"application_id = {_APPLICATION_ID}", f"user_version = {_version()}"
                        for statement in (*_ddl(), *(f"PRAGMA {mark}" for mark in marks)):
                            connection.exec_driver_sql(statement)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Transaction]:
        """Run one request or job: committed at the end of the block, rolled back by an exception."""
        with self._turn() if writes else nullcontext(), self._connection(writes=writes) as connection:
            # The time is read inside the transaction: a job that ran before it may have moved the clock.
            tx = Transaction(connection, self.clock.now(), self.clock.real.now(), self.options)
            yield tx
        # Not reached after a rollback: nothing was enqueued or scheduled then.
        self._after_commit(tx)

    @contextmanager
    def _connection(self, *, writes: bool) -> Iterator[sa.Connection]:
        with self._engine.connect().execution_options(writes=writes) as connection, connection.begin():
            yield connection

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for the turn to write.

        A lock alone is not fair: the thread that released it would take it again at once. So one thread waits
        for the writer to be done, and the others wait for that thread.
        """
        with self._next_writer:
            self._writer.acquire()
        try:
            yield
        finally:
            self._writer.release()

    def close(self) -> None:
        """Close every connection, release the lock, delete a temporary file."""
        self._engine.dispose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._folder is not None:
            self._folder.cleanup()
