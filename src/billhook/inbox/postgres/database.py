"""The PostgreSQL database behind an inbox: connections, transactions, and their failures."""

from __future__ import annotations

import logging
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy import URL, Connection, Engine, TableClause, create_engine, event, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError, NotSupportedError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from billhook.basics.concurrency import reset_in_child
from billhook.errors import ConfigError, InboxUnavailable, SchemaForbidden
from billhook.inbox.postgres import roles
from billhook.inbox.postgres.clock import SERVER_TIME, ServerClock
from billhook.inbox.postgres.dialect import POSTGRES
from billhook.inbox.postgres.driver import (
    INSERT_NEW,
    READING,
    READING_LATEST,
    WRITING,
    DeadlineConnection,
    check_encoding,
    connect,
    drop_read_only,
    insert,
    is_lost,
    quote_identifier,
    reason,
    replace_lost,
    schema_from_options,
)
from billhook.inbox.postgres.facts import PostgresFacts, read_facts
from billhook.inbox.postgres.waker import PostgresWaker
from billhook.inbox.tables.database import Database
from billhook.inbox.tables.dialect import with_own
from billhook.inbox.tables.facts import RowSecurity
from billhook.inbox.tables.records import NewDelivery
from billhook.inbox.tables.revision import verify, verify_opened
from billhook.inbox.tables.schema import version, worker

logger = logging.getLogger("billhook.inbox")

STATEMENT_TIMEOUT_SECONDS = 10.0
"""How long one statement may take. A request gives up sooner: see billhook.inbox.storing.committer."""
NOTIFY_TIMEOUT_SECONDS = 2.0
"""How long a notification may take: it is sent between two batches."""
_MIGRATING = 0x62696C6C  # "bill": the advisory lock of the migrations
_OTHERS = text(
    "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE relname = 'billhook_version' AND relkind IN ('r', 'p') AND nspname <> :schema ORDER BY nspname"
)
_RIGHTS = text(
    "SELECT current_user, has_database_privilege(current_database(), 'CREATE'), "
    "(SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE') "
    "FROM pg_namespace WHERE nspname = :schema), "
    "(SELECT row_security_active(pg_class.oid) FROM pg_class JOIN pg_namespace "
    "ON pg_namespace.oid = relnamespace WHERE nspname = :schema AND relname = 'billhook_version')"
)
_FAILURES = (DBAPIError, InvalidRequestError, PoolTimeout, psycopg.Error, OSError)
"""Failures of storage. InvalidRequestError: the pool's connections are lost as soon as they are made."""


class PostgresDatabase(Database):
    """Connections to one PostgreSQL database, opened anew in every process. See inbox.tables.database."""

    may_be_away = True
    waits_in_c = False
    keeps_entries = writes_overlap = True
    plan_rows = 400
    prune_rows = 500
    has_own_clock = True
    schema: str
    clock: ServerClock

    def __init__(self, url: URL, schema: str, *, is_session: bool) -> None:
        """Use `schema`, unless the URL's search_path names exactly one schema that is not public.

        `is_session`: a pooler in between, if there is one, keeps a session for each connection.
        Raises sqlalchemy's ArgumentError or ValueError for a URL that names its hosts in an unknown way.
        """
        if ":" in (url.username or ""):  # a password, which errors of the server would show
            raise ConfigError(
                "BILLHOOK_INBOX_URL: the user's name has a colon in it (%3A): write "
                "postgresql+psycopg://USER:PASSWORD@HOST/NAME, with a plain colon before the password"
            )
        self._url = url
        self._arguments = url.get_dialect()().create_connect_args(url)[1]
        try:
            make_conninfo(**self._arguments)
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"BILLHOOK_INBOX_URL: {reason(error)}") from None
        self.schema = schema_from_options(self._arguments.get("options", ""), schema)
        self.clock = ServerClock(self.display_url)
        self._is_session = is_session
        names = {table: self._name_of(table).replace("%", "%%") for table in ("delivery", version.name)}
        self._verify = partial(verify, table=names[version.name])
        as_text = names["delivery"].replace("'", "''")
        self._insert_new = INSERT_NEW.format(
            delivery=names["delivery"], delivery_text=as_text, version=names[version.name]
        ).encode()
        self.waker = PostgresWaker(partial(self._connect, NOTIFY_TIMEOUT_SECONDS), self._name_of("delivery"))
        self._parents_connections: list[object] = []
        self._fsync_checked = False
        self._reset()
        reset_in_child(self._reset_in_child)

    def _reset(self) -> None:
        self._mutex = threading.RLock()
        self._inserting = threading.Lock()
        self._engine: Engine | None = None
        self._inserter: DeadlineConnection | None = None

    def _reset_in_child(self) -> None:
        # Kept open: closing the copies here would end the parent's sessions.
        self._parents_connections.append((self._engine, self._inserter))
        self._reset()

    @property
    def display_url(self) -> str:
        """Return the URL without its password, and of its options only host and port."""
        query = {name: self._url.query[name] for name in ("host", "port") if name in self._url.query}
        return self._url.set(query=query).render_as_string(hide_password=True)

    def now(self) -> datetime:
        """Return the server's time; a process that has no connection yet makes one."""
        if self.clock.is_due:
            with self.read(checked=False):  # which measures
                pass
        return self.clock.now()

    @property
    def machine_ahead_seconds(self) -> float:
        """Return how far this machine's clock is ahead of the server's."""
        return self.clock.machine_ahead_seconds

    def prepare(self) -> None:
        """Check that the schema fits; only `billhook db upgrade` changes it, when the operator asks.

        On a connection of its own, which other threads' connections do not wait for, and which is closed.
        """
        with self._storage_errors():
            self._verified_engine().dispose()

    def insert_new(self, rows: Sequence[NewDelivery]) -> Sequence[int]:
        """Commit the deliveries that are new, in one statement and one round trip."""
        # A failure may come after the COMMIT, with its answer lost. The connection is dropped, the sender
        # sends again, and the unique key makes a duplicate of what was committed.
        with self._inserting, self._storage_errors():
            try:
                if self._inserter is not None and is_lost(self._inserter):
                    self._drop_inserter()  # the server was restarted between two deliveries
                if self._inserter is None:
                    self._open()
                    self._inserter = self._connect(STATEMENT_TIMEOUT_SECONDS)
                return insert(self._inserter, self._insert_new, rows)
            except (psycopg.Error, OSError) as error:
                self._drop_inserter()
                if isinstance(error, psycopg.errors.NotNullViolation):  # the state: see `insert`
                    with self.read(storing=True):
                        pass
                raise

    def _drop_inserter(self) -> None:
        dropped, self._inserter = self._inserter, None
        if dropped is not None:
            dropped.close()

    @contextmanager
    def read(self, *, storing: bool = False, checked: bool = True) -> Iterator[Connection]:
        """Open a consistent snapshot, for reading only; not `checked`, it costs no round trip of its own.

        Behind a pooler it does.
        """
        with self._storage_errors(), self._open().connect() as connection:
            session: Any = connection.connection.driver_connection
            if checked:
                _begin(connection, READING)
                self._verify(connection.exec_driver_sql, storing=storing)
            elif session.is_pooled:
                _begin(connection, READING_LATEST)
            if self.clock.is_due:
                self._measure(connection)
            try:
                yield connection
            except (ProgrammingError, NotSupportedError):
                # A column is missing, or has another type: the schema is perhaps that of another release.
                connection.rollback()
                self._verify(connection.exec_driver_sql, storing=storing)
                raise
            connection.commit()  # the driver forgets its prepared statements when it rolls back

    @contextmanager
    def write(self, *, storing: bool = False) -> Iterator[Connection]:
        """Open a transaction; rows locked by others are waited for or skipped, as the statement says."""
        with self._storage_errors(), self._open().begin() as connection:
            _begin(connection, WRITING)
            if self.clock.is_due:
                self._measure(connection)
            yield connection
            # Last: a transaction that waited for a migration's locks goes on with the schema that it made.
            self._verify(connection.exec_driver_sql, storing=storing)

    @contextmanager
    def migration_transaction(self) -> Iterator[Connection]:
        """Open a write transaction on a schema of any age: no time limit, one at a time across processes."""
        with self._storage_errors():
            engine = self._new_engine(timeout_seconds=None)
            try:
                with engine.begin() as connection:
                    _begin(connection, WRITING)
                    # Two deployments may upgrade at once: the second finds the work done.
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATING})"))
                    check_encoding(connection, self.display_url)
                    yield connection
            finally:
                engine.dispose()

    def create_schema(self, connection: Connection, *, dry_run: bool = False) -> None:
        """Create the schema if it is missing, in the caller's transaction.

        Raises SchemaForbidden, with a statement for a role that may; a `dry_run` does nothing else.
        """
        rights = connection.execute(_RIGHTS, {"schema": self.schema}).one()
        role, may_create, may_use, is_hidden = rights
        schema = quote_identifier(self.schema)
        if is_hidden:  # an inbox is there, whose revision row security hides
            disabling = f"ALTER TABLE {schema}.billhook_version DISABLE ROW LEVEL SECURITY"
            raise SchemaForbidden(role, self.schema, disabling)
        if may_use is None and may_create:
            if not dry_run:
                connection.execute(text(f"CREATE SCHEMA {schema}"))
        elif may_use is None:
            making = f"CREATE SCHEMA {schema} AUTHORIZATION {quote_identifier(role)}"
            raise SchemaForbidden(role, self.schema, making)
        elif not may_use:
            grant = f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {quote_identifier(role)}"
            raise SchemaForbidden(role, self.schema, grant)

    def row_security(self) -> RowSecurity:
        """Read which of the tables have row security that applies to this role."""
        with self.read(checked=False) as connection:
            return roles.row_security(connection, self.schema)

    def facts(self) -> PostgresFacts:
        """Read the facts of the server, the connection and the schema."""
        with self.read() as connection:
            return read_facts(connection, self)

    def other_schemas(self) -> list[str]:
        """Return the other schemas that hold an inbox, whether or not this role may use them."""
        with self.read() as connection:
            return list(connection.execute(_OTHERS, {"schema": self.schema}).scalars())

    def back_up(self, target: Path, progress: Callable[[int, int], None]) -> int:
        """Raise ConfigError with the PostgreSQL command that does it."""
        del progress
        # The file has customers' data: with pg_dump's own mode every account could read it. The workers of
        # the dump's time would be taken for dead ones where it is restored.
        schema = quote_identifier(self.schema)
        command = (
            f"umask 077 && pg_dump --format=custom --schema={shlex.quote(schema)} "
            f"--exclude-table-data={shlex.quote(f'{schema}.{worker.name}')}"
        )
        raise ConfigError(
            "an inbox on PostgreSQL is backed up by PostgreSQL's own tools: "
            f"{command} --dbname={self._conninfo()} --file={shlex.quote(str(target))}"
        )

    def check_restore(self, backup: Path) -> NoReturn:
        """Raise ConfigError with the PostgreSQL command that does it."""
        raise ConfigError(
            "an inbox on PostgreSQL is restored by PostgreSQL's own tools, while nothing uses it: "
            "pg_restore --clean --if-exists --single-transaction "
            f"--dbname={self._conninfo()} {shlex.quote(str(backup))}"
        )

    def restore(self, backup: Path, progress: Callable[[int, int], None]) -> NoReturn:
        """Raise ConfigError with the PostgreSQL command that does it."""
        del progress
        self.check_restore(backup)

    def _conninfo(self) -> str:
        """Return the connection string for a shell, without a password."""
        shown = ("host", "port", "user", "dbname")
        return shlex.quote(make_conninfo(**{n: self._arguments[n] for n in shown if n in self._arguments}))

    def close(self) -> None:
        """Close every connection of this process; the next use opens them again. Call before a fork."""
        with self._inserting, self._mutex:
            self._drop_inserter()
            self.waker.close()
            if self._engine is not None:
                # A thread that still reads returns its connection to this pool, which nothing closes again.
                event.listen(self._engine.pool, "checkin", _close_returned)
                self._engine.dispose()
                self._engine = None

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except _FAILURES as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            raise InboxUnavailable(f"the inbox {self.display_url} failed: {reason(cause)}") from None

    def _open(self) -> Engine:
        # Under the mutex, or threads that start together would each open and verify an engine.
        with self._mutex:
            if self._engine is None:
                self._engine = self._verified_engine()
            return self._engine

    def _verified_engine(self) -> Engine:
        engine = self._new_engine(STATEMENT_TIMEOUT_SECONDS)
        try:
            with engine.begin() as connection:
                _begin(connection, READING)
                check_encoding(connection, self.display_url)
                verify_opened(connection)
                if not self._fsync_checked:
                    # Only a warning: the server's operator alone can change that.
                    if connection.execute(text("SHOW fsync")).scalar_one() != "on":
                        lost = "what was answered 200 may be gone after a power cut"
                        logger.warning("the server of %s runs with fsync=off: %s", self.display_url, lost)
                    self._fsync_checked = True
        except BaseException:
            engine.dispose()
            raise
        return engine

    def _new_engine(self, timeout_seconds: float | None) -> Engine:
        engine = create_engine(
            self._url.set(query={}),
            creator=partial(self._connect, timeout_seconds),
            pool_timeout=STATEMENT_TIMEOUT_SECONDS,
            use_native_hstore=False,  # saves each new pool a query
        )
        # A session's search_path may be another client's, and a temporary table of his comes before any path.
        engine.dialect.identifier_preparer.schema_for_object = self._schema_of
        with_own(engine.dialect, POSTGRES, self.display_url)
        event.listen(engine, "checkout", replace_lost)
        event.listen(engine, "handle_error", drop_read_only)
        return engine

    def _connect(self, timeout_seconds: float | None) -> DeadlineConnection:
        connection = connect(self._arguments, timeout_seconds, self.schema, is_session=self._is_session)
        try:
            self.clock.measure(lambda: connection.execute(SERVER_TIME, ()).fetchall()[0][0])
        except BaseException:
            connection.close()
            raise
        return connection

    def _measure(self, connection: Connection) -> None:
        self.clock.measure(lambda: connection.exec_driver_sql(SERVER_TIME).scalar_one())

    def _schema_of(self, thing: object) -> Any:
        return (thing.schema or self.schema) if isinstance(thing, TableClause) else None

    def _name_of(self, table: str) -> str:
        return f"{quote_identifier(self.schema)}.{table}"


def _begin(connection: Connection, mode: str) -> None:
    """Begin the transaction that SQLAlchemy takes to have begun already, and will end."""
    session: Any = connection.connection.driver_connection
    statement = f"BEGIN {mode}{session.settings}"
    connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def _close_returned(connection: DeadlineConnection | None, record: object) -> None:
    if connection is not None:
        connection.close()
