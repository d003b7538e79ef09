"""The PostgreSQL database behind an inbox: connections, transactions, and what may go wrong with them."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from billhook.errors import ConfigError, InboxElsewhere, InboxUnavailable, SchemaMismatch
from billhook.inbox.forking import SETTING_UP
from billhook.inbox.postgres.bell import PostgresBell
from billhook.inbox.postgres.driver import (
    PatientConnection,
    connect,
    insert,
    is_lost,
    known,
    reason,
    replace_lost,
    tell_of_fsync,
)
from billhook.inbox.postgres.express import PostgresExpress
from billhook.inbox.postgres.place import enter, former_schema, move_in, quoted, schema_of
from billhook.inbox.records import Incoming

__all__ = ["PostgresDatabase"]

PATIENCE_SECONDS = 10.0
"""How long one statement may take. A request does not wait so long: see billhook.inbox.committer."""
RING_SECONDS = 2.0
"""How long the bell may take: it is rung between two batches."""
_MIGRATING = 0x62696C6C  # "bill": the advisory lock of the migrations
_FAILURES = (DBAPIError, InvalidRequestError, PoolTimeout, psycopg.Error, OSError)
"""Of storage. InvalidRequestError is of a pool whose connections are lost as soon as they are made."""


class PostgresDatabase:
    """Connections to one PostgreSQL database, built anew in every process. See inbox.database.Database."""

    may_return = True

    def __init__(self, url: URL, schema: str, verify: Callable[[Connection], None]) -> None:
        """`verify` is called in each process's first transaction and raises to refuse the database.

        The inbox is in `schema`, unless the URL's search_path names one, and only one, that is not public.
        Raises sqlalchemy's ArgumentError or ValueError for a URL that names its hosts in no known way.
        """
        self._url = url
        self._arguments = known(url.get_dialect()().create_connect_args(url)[1])
        self.schema = schema_of(self._arguments.get("options", ""), schema)
        self._verify = verify
        self.express = PostgresExpress(self._connect_directly, self._storage_errors)
        self._forked: list[object] = []
        self._told = False
        self._start_over()

    def _start_over(self) -> None:
        self._mutex = threading.RLock()
        self._inserting = threading.Lock()
        self._engine: Engine | None = None
        self._inserter: PatientConnection | None = None
        self._bell = PostgresBell(partial(self._connect, RING_SECONDS, autocommit=True))
        self._pid = os.getpid()  # last: whoever sees it uses what is above

    def _own(self) -> None:
        """After a fork, leave the parent's connections alone: closing them here would end its sessions."""
        if self._pid != os.getpid():
            with SETTING_UP:
                if self._pid != os.getpid():  # pragma: no branch - another thread was first
                    self._forked.append((self._engine, self._inserter, self._bell))
                    self._start_over()

    @property
    def place(self) -> str:
        """The URL without its password, and of its options only where the server is."""
        query = {name: self._url.query[name] for name in ("host", "port") if name in self._url.query}
        return self._url.set(query=query).render_as_string(hide_password=True)

    @property
    def bell(self) -> PostgresBell:
        """This process's: its connections are no more to be shared than the others."""
        self._own()
        return self._bell

    def prepare(self) -> None:
        """See that the schema fits; it is `billhook db upgrade` that changes it, on purpose.

        On a connection of its own: whoever uses the others may do so meanwhile, and none is open afterwards.
        """
        with self._storage_errors():
            self._verified_engine().dispose()

    def insert_new(self, rows: Sequence[Incoming]) -> Sequence[int]:
        """Commit the deliveries that are new, in one statement and one round trip."""
        self._own()
        with self._inserting, self._storage_errors():
            try:
                return insert(self._ready_inserter(), rows)
            except (psycopg.Error, OSError):
                self._drop_inserter()
                raise

    def _ready_inserter(self) -> PatientConnection:
        if self._inserter is not None and is_lost(self._inserter):
            self._drop_inserter()  # the server was restarted while nothing came
        if self._inserter is None:
            self._inserter = self._connect_directly()
        return self._inserter

    def _connect_directly(self) -> PatientConnection:
        self._own()
        self._open()
        return self._connect(PATIENCE_SECONDS, autocommit=True)

    def _drop_inserter(self) -> None:
        dropped, self._inserter = self._inserter, None
        if dropped is not None:
            dropped.close()

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
            engine = self._new_engine(patience_seconds=None, schema=None)
            try:
                with engine.begin() as connection:
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATING})"))
                    enter(connection, self.schema)
                    yield connection
            finally:
                engine.dispose()

    def move_in(self, connection: Connection) -> str | None:
        """Make the inbox's schema, in a transaction of `write_unverified`; see inbox.database.Database."""
        return move_in(connection, self.schema)

    def former(self) -> str | None:
        """The other schema where a billhook without one of its own kept the inbox, if it is still there."""
        with self._storage_errors():
            engine = self._new_engine(PATIENCE_SECONDS, schema=None)
            try:
                with engine.connect() as connection:
                    return former_schema(connection, self.schema)
            finally:
                engine.dispose()

    def back_up(self, target: Path, progress: Callable[[int, int], None]) -> int:
        """Raise ConfigError with the command of PostgreSQL's own that does it."""
        del progress
        command = f"pg_dump --format=custom --schema={shlex.quote(quoted(self.schema))}"
        raise ConfigError(
            "an inbox on PostgreSQL is backed up by PostgreSQL's own tools: "
            f"{command} --dbname={self._conninfo()} --file={shlex.quote(str(target))}"
        )

    def restore(self, backup: Path, progress: Callable[[int, int], None]) -> int:
        """Raise ConfigError with the command of PostgreSQL's own that does it."""
        del progress
        raise ConfigError(
            "an inbox on PostgreSQL is restored by PostgreSQL's own tools, while nothing uses it: "
            "pg_restore --clean --if-exists --single-transaction "
            f"--dbname={self._conninfo()} {shlex.quote(str(backup))}"
        )

    def _conninfo(self) -> str:
        """Where the database is, for a shell, without a password."""
        told = ("host", "port", "user", "dbname")
        return shlex.quote(make_conninfo(**{n: self._arguments[n] for n in told if n in self._arguments}))

    def tidy(self, *, at_once: bool = False) -> None:
        """Nothing: the server keeps its own house."""

    def close(self) -> None:
        """Close every connection of this process; the next use opens them again. Call before a fork."""
        self._own()
        with self._inserting, self._mutex:
            self._drop_inserter()
            self._bell.close()
            self.express.close()
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except _FAILURES as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            raise InboxUnavailable(f"the inbox {self.place} failed: {reason(cause)}") from None

    def _open(self) -> Engine:
        with self._mutex:
            if self._engine is None:
                self._engine = self._verified_engine()
            return self._engine

    def _verified_engine(self) -> Engine:
        engine = self._new_engine(PATIENCE_SECONDS, self.schema)
        try:
            with engine.begin() as connection:
                self._verify(connection)
                if not self._told:
                    tell_of_fsync(connection, self.place)
                    self._told = True
        except SchemaMismatch as error:
            engine.dispose()
            if error.found is None and (former := self.former()):
                raise InboxElsewhere(former, self.schema, error.expected) from None
            raise
        except BaseException:
            engine.dispose()
            raise
        return engine

    def _new_engine(self, patience_seconds: float | None, schema: str | None) -> Engine:
        engine = create_engine(
            self._url.set(query={}),
            creator=partial(connect, self._arguments, patience_seconds, schema=schema),
            pool_timeout=PATIENCE_SECONDS,
            use_native_hstore=False,  # one question less of each new pool
        )
        event.listen(engine, "checkout", replace_lost)
        return engine

    def _connect(self, patience_seconds: float | None, **more: Any) -> PatientConnection:
        return connect(self._arguments, patience_seconds, schema=self.schema, **more)
