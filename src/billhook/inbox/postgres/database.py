"""The PostgreSQL database behind an inbox: connections, transactions, and what may go wrong with them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from billhook.errors import InboxUnavailable
from billhook.inbox.forking import SETTING_UP
from billhook.inbox.postgres.bell import PostgresBell
from billhook.inbox.postgres.driver import connect, insert
from billhook.inbox.records import Incoming

__all__ = ["PostgresDatabase"]

PATIENCE_SECONDS = 10.0
"""How long one statement may take. A request does not wait so long: see billhook.inbox.committer."""
_MIGRATING = 0x62696C6C  # "bill": the advisory lock of the migrations


class PostgresDatabase:
    """Connections to one PostgreSQL database, built anew in every process. See inbox.database.Database."""

    def __init__(self, url: URL, verify: Callable[[Connection], None]) -> None:
        """`verify` is called in each process's first transaction and raises to refuse the database."""
        self._url = url
        self._verify = verify
        self._forked: list[object] = []
        self._start_over()

    def _start_over(self) -> None:
        self._mutex = threading.RLock()
        self._inserting = threading.Lock()
        self._engine: Engine | None = None
        self._inserter: psycopg.Connection[Any] | None = None
        self.bell = PostgresBell(partial(self._connect, PATIENCE_SECONDS, autocommit=True))
        self._pid = os.getpid()  # last: whoever sees it uses what is above

    def _own(self) -> None:
        """After a fork, leave the parent's connections alone: closing them here would end its sessions."""
        if self._pid != os.getpid():
            with SETTING_UP:
                if self._pid != os.getpid():  # pragma: no branch - another thread was first
                    self._forked.append((self._engine, self._inserter, self.bell))
                    self._start_over()

    @property
    def place(self) -> str:
        """The URL without its password and options."""
        return self._url.set(query={}).render_as_string(hide_password=True)

    def prepare(self) -> None:
        """See that the schema fits; it is `billhook db upgrade` that changes it, on purpose."""
        self._open()
        self.close()

    def insert_new(self, rows: Sequence[Incoming]) -> Sequence[int]:
        """Commit the deliveries that are new, in one statement and one round trip."""
        self._own()
        with self._inserting, self._storage_errors():
            try:
                if self._inserter is None:
                    self._open()
                    self._inserter = self._connect(PATIENCE_SECONDS, autocommit=True)
                return insert(self._inserter, rows)
            except psycopg.Error:
                broken, self._inserter = self._inserter, None
                if broken is not None:
                    with suppress(psycopg.Error):
                        broken.close()
                raise

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent snapshot, for reading only."""
        self._own()
        with self._storage_errors(), self._open().connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction; rows that others hold are waited for or passed over, as the statement says."""
        self._own()
        with self._storage_errors(), self._open().begin() as connection:
            yield connection

    @contextmanager
    def write_unverified(self) -> Iterator[Connection]:
        """A write transaction on a schema of any age, as long as it takes, one at a time whoever asks."""
        with self._storage_errors():
            engine = self._new_engine(patience_seconds=None)
            try:
                with engine.begin() as connection:
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATING})"))
                    yield connection
            finally:
                engine.dispose()

    def tidy(self) -> None:
        """Nothing: the server keeps its own house."""

    def close(self) -> None:
        """Close every connection of this process; the next use opens them again. Call before a fork."""
        self._own()
        with self._inserting, self._mutex:
            if self._inserter is not None:
                self._inserter.close()
                self._inserter = None
            self.bell.close()
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, psycopg.Error) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            raise InboxUnavailable(f"the inbox {self.place} failed: {cause}") from None

    def _open(self) -> Engine:
        with self._mutex:
            if self._engine is None:
                engine = self._new_engine(PATIENCE_SECONDS)
                try:
                    with engine.begin() as connection:
                        self._verify(connection)
                except BaseException:
                    engine.dispose()
                    raise
                self._engine = engine
            return self._engine

    def _new_engine(self, patience_seconds: float | None) -> Engine:
        return create_engine(self._url.set(query={}), creator=partial(self._connect, patience_seconds))

    def _connect(self, patience_seconds: float | None, **more: Any) -> psycopg.Connection[Any]:
        names = self._url.translate_connect_args(username="user", database="dbname")
        return connect({**self._url.query, **names}, patience_seconds, **more)
