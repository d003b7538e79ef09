"""The psycopg driver: connections with a deadline, and a batch inserted in one round trip.

An inbox is in a schema of its own, which an app's migration tool does not see.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.abc import RV, PQGen
from sqlalchemy import Connection, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DisconnectionError

from billhook.basics.concurrency import wait_readable
from billhook.errors import UnfitEncoding
from billhook.inbox.tables import revision
from billhook.inbox.tables.records import NEW_COLUMNS, NewDelivery

SESSION = {
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "standard_conforming_strings": "on",
    "client_encoding": "UTF8",
    "array_nulls": "on",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
}
"""What decides how values are written and read, and what a commit means.

No server, database, role, URL, service file, environment, pooler or pooler's other client has a say in it.
"""
READING = "ISOLATION LEVEL REPEATABLE READ, READ ONLY"
READING_LATEST = "ISOLATION LEVEL READ COMMITTED, READ ONLY"
WRITING = "ISOLATION LEVEL READ COMMITTED, READ WRITE"


READ_ONLY = ("25006", "0A000")
"""What a standby answers to statements that write and to BEGIN READ WRITE, in words of any language."""


class _Cursor(psycopg.Cursor[Any]):
    """Gets results in binary, which no setting of the session changes.

    Only a statement without parameters gets text, so that it may be several, sent as one.
    """

    def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        """Execute the statement."""
        return super().execute(query, params, prepare=prepare, binary=params is not None)


class DeadlineConnection(psycopg.Connection[Any]):
    """A connection that closes after `timeout_seconds` without an answer.

    The server's own time-outs do not help against a server that is stopped, or gone from the network.
    """

    timeout_seconds: float | None = None
    has_pooler: bool = False
    """Whether something between us and the server answers for it."""
    is_pooled: bool = False
    """Whether each transaction may get another session, in which other clients have their settings."""
    settings = ""
    """What follows the statement that begins a transaction: it takes nothing over from the session.

    So its commit waits for the disk. Others see what it wrote only after that: a delivery that is read as the
    first of a duplicate is on the disk, too.
    """

    def adopt(self, settings: Mapping[str, str], *, is_session: bool) -> None:
        """Use these settings: set them once if the session is ours, else in each transaction.

        It is ours if the server's process is the one that the connection was told of at its start, for which
        a pooler names a number of its own; or if `is_session` says so.
        """
        self.has_pooler = self.execute("SELECT pg_backend_pid()").fetchall() != [(self.info.backend_pid,)]
        self.is_pooled = self.has_pooler and not is_session
        values = ", ".join(
            f"set_config('{name}', {sql.quote(value, self)}, {'true' if self.is_pooled else 'false'})"
            for name, value in settings.items()
        )
        if self.is_pooled:
            self.settings = f"; SELECT {values}"
            self.prepare_threshold = None  # a prepared statement belongs to a session
        else:
            self.execute(f"SELECT {values}")

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Wait for the server as psycopg does, but not past the deadline. Every statement calls this."""
        if self.timeout_seconds is None:
            return super().wait(gen, *args, **kwargs)
        return super().wait(self._until_deadline(gen, self.timeout_seconds), *args, **kwargs)

    def _until_deadline(self, gen: PQGen[RV], seconds: float) -> PQGen[RV]:
        """Run the steps of `gen` until the deadline; psycopg itself would wait for each without a limit.

        After the deadline one more step is taken: if this process was suspended, the answer may have arrived.
        """
        # Closed, not cancelled: a server that does not answer does not answer a cancellation either.
        end, late = time.monotonic() + seconds, False
        try:
            step = next(gen)
            while True:
                step = gen.send((yield step))
                if late:
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {seconds:g} s")
                late = time.monotonic() > end
        except StopIteration as done:
            answer: RV = done.value
            return answer


def session_settings(url_options: str, timeout_seconds: float | None, schema: str) -> dict[str, str]:
    """Return the settings of a session: commits wait for the disk, and abandoned locks are released.

    `url_options` come from the URL. They may change the time-outs, but not whether a commit waits for the
    disk, nor the schema.
    """
    milliseconds = str(int((timeout_seconds or 0) * 1000))  # 0: no limit, even if the role has one
    limits = dict.fromkeys(("statement_timeout", "idle_in_transaction_session_timeout"), milliseconds)
    limits["lock_timeout"] = "0"
    for name, value in _options(url_options):
        if name in limits:
            limits[name] = value
    return {**limits, **SESSION, "search_path": quote_identifier(schema)}


def connect(
    arguments: Mapping[str, Any], timeout_seconds: float | None, schema: str, *, is_session: bool
) -> DeadlineConnection:
    """Open a connection with autocommit; `arguments` are libpq's. Raises psycopg.Error, OSError.

    They override our defaults. With `is_session` a pooler is taken to keep a session for each connection.
    """
    defaults = {
        "connect_timeout": 2,
        "application_name": "billhook",
        # A listener is idle for hours: keepalives detect a lost server within a minute.
        "keepalives_idle": 10,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        # During a failover the address may lead to a standby: a connection to it could never write.
        "target_session_attrs": "read-write",
        "options": "",  # for PGOPTIONS
    }
    fixed = {"client_encoding": "UTF8"}  # for PGCLIENTENCODING
    connection = DeadlineConnection.connect(
        **{**defaults, **arguments, **fixed}, autocommit=True, cursor_factory=_Cursor
    )
    try:
        connection.timeout_seconds = timeout_seconds
        # By statements, not by options at the start: a pooler drops or refuses those.
        settings = session_settings(arguments.get("options", ""), timeout_seconds, schema)
        connection.adopt(settings, is_session=is_session)
    except BaseException:
        connection.close()
        raise
    return connection


def is_lost(connection: psycopg.Connection[Any]) -> bool:
    """Return whether an idle connection has ended: an idle server sends nothing but its goodbye."""
    return connection.closed or bool(wait_readable((connection.fileno(),), 0))


def replace_lost(connection: psycopg.Connection[Any], *_: object) -> None:
    """Raise DisconnectionError for a pooled connection that ended while idle, so SQLAlchemy replaces it."""
    if is_lost(connection):
        raise DisconnectionError("the server ended it")


def drop_read_only(context: ExceptionContext) -> None:
    """Count the error of a server that only reads as a lost connection, so that SQLAlchemy makes new ones."""
    error = context.original_exception
    if isinstance(error, psycopg.Error) and error.sqlstate in READ_ONLY:
        context.is_disconnect = True


def check_encoding(connection: Connection, place: str) -> None:
    """Raise UnfitEncoding unless the database can store every text."""
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise UnfitEncoding(place, encoding)


def reason(error: BaseException | None) -> str:
    """Return the error in one line, without the server's DETAIL, which may show a row, and so a body."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((primary or str(error)).split())


# Without a right to store, the state is NULL, which the table refuses.
INSERT_NEW = """
    INSERT INTO {delivery}
        (id, source, key, event_type, type_field, body, digest, headers, signed_at, received_at, state)
    SELECT (ARRAY(SELECT nextval(pg_get_serial_sequence('{delivery_text}', 'id'))
                  FROM generate_series(1, %s)))[arrival],
        source, key, event_type, type_field, body, digest, headers, signed_at, received_at,
        (SELECT 'received' FROM {version}
         WHERE %s BETWEEN coalesce(oldest_compatible, version_num) AND version_num)
    FROM unnest(%s::int[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::bytea[],
                %s::text[], %s::timestamptz[], %s::timestamptz[])
         WITH ORDINALITY
         AS new (arrival, source, key, event_type, type_field, body, digest, headers, signed_at, received_at,
                 number)
    ORDER BY number
    ON CONFLICT (source, key, variant) DO NOTHING
    RETURNING id
"""


def insert(connection: DeadlineConnection, statement: bytes, rows: Sequence[NewDelivery]) -> list[int]:
    """Commit the rows that are new; see billhook.inbox.tables.database.Database.insert_new.

    The rows are inserted in the order of their keys, so that two processes with the same two deliveries
    cannot deadlock; their ids are in the order in which they came. A schema in which this code may not store
    deliveries is a NotNullViolation. `statement` is INSERT_NEW.
    """
    order = sorted(range(len(rows)), key=lambda number: (rows[number].source, rows[number].key))
    columns: list[object] = [len(rows), revision.REVISION, [number + 1 for number in order]]
    columns += [[getattr(rows[number], name) for number in order] for name in NEW_COLUMNS]
    if connection.is_pooled:  # else the statement is its own transaction
        connection.execute(f"BEGIN {WRITING}{connection.settings}".encode())
    ids = sorted(row[0] for row in connection.execute(statement, columns))
    if connection.is_pooled:
        connection.commit()
    return ids


_OPTION = re.compile(r"(?:-c\s*|--)([\w.-]+)=((?:\\.|[^\s\\])*)")
_NAME = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",\s]+))\s*(?:,|$)')
_SHARED = ("public", "$user")


def quote_identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def parse_search_path(path: str) -> list[str]:
    """Return the names in a search_path, as PostgreSQL reads them."""
    return [whole.replace('""', '"') if whole else plain.lower() for whole, plain in _NAME.findall(path)]


def _options(options: str) -> list[tuple[str, str]]:
    """Return the settings in a URL's session options, as the server reads them."""
    return [
        (name.replace("-", "_").lower(), re.sub(r"\\(.)", r"\1", value))
        for name, value in _OPTION.findall(options)
    ]


def schema_from_options(options: str, default: str) -> str:
    """Return the one schema that a URL's session options name, if it is not a shared one; else `default`."""
    paths = [value for name, value in _options(options) if name == "search_path"]
    names = parse_search_path(paths[-1]) if paths else []
    return names[0] if len(names) == 1 and names[0] not in _SHARED else default
