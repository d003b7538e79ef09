"""The interface of a database that an inbox can use, and the choice of one by its URL.

billhook.inbox.sqlite and billhook.inbox.postgres implement the protocols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from sqlalchemy import URL, Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from billhook.errors import ConfigError, MissingExtra
from billhook.inbox.records import NewDelivery
from billhook.inbox.sqlite import SqliteDatabase


class Listener(Protocol):
    """Hears the notifications of one inbox from its creation on, beside other listeners."""

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until a notification or the end of the time; True for the former. Raises OSError."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Waker(Protocol):
    """Wakes engines in any process. A notification may be lost: every listener also polls."""

    def wake(self) -> None:
        """Wake every listener; never raises."""
        ...

    def fileno(self) -> int:
        """Return the descriptor that becomes readable on a notification. Raises OSError without one."""
        ...

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until a notification or the end of the time; True for the former. Raises OSError."""
        ...

    def listener(self) -> Listener:
        """Return a listener that takes no notification from an engine. Raises OSError."""
        ...


class Database(Protocol):
    """Connections to one database, opened anew in every process.

    Every method raises InboxUnavailable when the storage fails, and has then rolled back.
    """

    @property
    def display_url(self) -> str:
        """Its address for people: without a password."""
        ...

    @property
    def schema(self) -> str | None:
        """The schema that the tables are in, or will be; None where the database has no schemas."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether it may be unreachable when a process starts, and be back later without any change."""
        ...

    @property
    def commit_seconds(self) -> float:
        """How long this process's last transaction held up all other writers while it was synced; else 0."""
        ...

    @property
    def waker(self) -> Waker:
        """Notified after each commit of deliveries."""
        ...

    def write_lock_holder(self) -> int | None:
        """Return the id of the process that keeps all others from writing; None if there is none.

        Never waits for the database.
        """
        ...

    def prepare(self) -> None:
        """Check at start that it exists and fits this code. Leaves no connection open, for a fork."""
        ...

    def turn(self) -> AbstractContextManager[None]:
        """Wait until no other process writes, where only one may, and let none begin in the block."""
        ...

    def insert_new(self, rows: Sequence[NewDelivery]) -> Sequence[int]:
        """Commit rows as the first of their (source, key), skipping keys that have one already.

        Returns the ids of the new rows: when all are new, in the order of `rows`.
        """
        ...

    def read(self, *, storing: bool = False, checked: bool = True) -> AbstractContextManager[Connection]:
        """Open a consistent snapshot of what is committed, for reading only.

        With `storing`, for a receiver: on a newer schema too, if that lets this code store deliveries. Raises
        SchemaMismatch. Not `checked`, on a server, the schema may be any that can be read, and each statement
        sees what is committed when it begins: only for what a transaction of `write` then acts on.
        """
        ...

    def write(self, *, storing: bool = False) -> AbstractContextManager[Connection]:
        """Open a transaction, committed when the block ends; `storing` and errors as for `read`."""
        ...

    def migration_transaction(self) -> AbstractContextManager[Connection]:
        """Open a write transaction on a schema of any age, one at a time across processes."""
        ...

    def other_schemas(self) -> list[str]:
        """Return the other schemas of the same database that hold an inbox."""
        ...

    def create_schema(self, connection: Connection) -> None:
        """Create the schema before the first migration, in its transaction. Raises SchemaForbidden."""
        ...

    def back_up(self, target: Path, progress: Callable[[int, int], None]) -> int:
        """Copy the inbox into a new file while it is in use; returns the number of its deliveries.

        `progress` is called with pages done and pages in all. Raises ConfigError where other tools do that,
        or the target cannot be created; InboxError.
        """
        ...

    def restore(self, backup: Path, progress: Callable[[int, int], None]) -> int:
        """Put a backup in place of the inbox, which no process may use. Otherwise as `back_up`."""
        ...

    def checkpoint(self, *, at_once: bool = False) -> None:
        """Do regular maintenance when it is due; `at_once`: now. Transactions of `write` do it themselves."""
        ...

    def close(self) -> None:
        """Close every connection of this process; the next use opens them again. Call before a fork."""
        ...


_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")


def open_database(url: str, *, busy_seconds: float, schema: str, own_folder: bool) -> Database:
    """Open sqlite:///PATH, or postgresql+psycopg://USER@HOST/NAME with the extra billhook[postgres].

    `schema`: where the tables are on PostgreSQL, unless the URL's search_path says. `own_folder`: whether a
    SQLite file's folder may be created. `busy_seconds`: how long to wait for a locked SQLite file.
    Raises ConfigError for any other URL, without repeating its password; MissingExtra.
    """
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError(
            f"BILLHOOK_INBOX_SCHEMA is {schema!r}: it must be at most 63 of a to z, 0 to 9 and _, "
            "begin with no digit and not with pg_"
        )
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        raise ConfigError(
            "BILLHOOK_INBOX_URL is no database URL: write sqlite:///PATH or "
            "postgresql+psycopg://USER:PASSWORD@HOST/NAME"
        ) from None
    if parsed.get_backend_name() == "sqlite":
        return SqliteDatabase(_path(parsed), busy_seconds, own_folder=own_folder)
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise ConfigError(
            f"BILLHOOK_INBOX_URL names {parsed.drivername!r}: an inbox is sqlite:///PATH or "
            "postgresql+psycopg://USER:PASSWORD@HOST/NAME"
        )
    if (
        "@" in f"{parsed.host}{parsed.database}"
    ):  # what stands before it may be part of the password: do not repeat it
        raise ConfigError(
            "BILLHOOK_INBOX_URL has an @ too many: in a password write %40 for @, %2F for / and %25 for %"
        )
    try:
        from billhook.inbox.postgres import PostgresDatabase  # last: a wrong URL is no missing extra
    except ImportError:
        raise MissingExtra("an inbox in PostgreSQL", "postgres") from None
    try:
        return PostgresDatabase(parsed.set(drivername="postgresql+psycopg"), schema)
    except (ArgumentError, ValueError):
        raise ConfigError(
            "BILLHOOK_INBOX_URL names several hosts in a way that is not understood: write "
            "postgresql+psycopg://USER:PASSWORD@/NAME?host=FIRST:PORT&host=SECOND:PORT"
        ) from None


def _path(url: URL) -> str:
    if url.database in (None, "", ":memory:"):
        raise ConfigError("BILLHOOK_INBOX_URL must name a file: an inbox in memory would lose deliveries")
    return str(Path(str(url.database)))
