"""Opening the sandbox's database, and the two kinds of transaction on it."""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable

from billhook.errors import ConfigError
from billhook.sandbox.storage import facts
from billhook.sandbox.storage.sole_use import SoleUse
from billhook.sandbox.storage.tables import access, metadata

__all__ = ["Database"]

_WRITERS = 0x62696C6C  # the number of PostgreSQL's lock: any that nobody else takes
_FINGERPRINT = "tables"


class Database:
    """An open database.

    One transaction writes at a time, on PostgreSQL as well: so rules that look before they act hold.
    """

    def __init__(self, url: str) -> None:
        """Open it, with its tables made if there are none; ConfigError if it cannot be used.

        It is this one's alone until it is closed.
        """
        self._folder = None
        self._use: SoleUse | None = None
        if url == "sqlite://":
            self._folder = tempfile.TemporaryDirectory(prefix="billhook-sandbox-")
            url = f"sqlite:///{self._folder.name}/sandbox.db"
        self._turnstile, self._writer = threading.Lock(), threading.Lock()
        self._engine = _engine(url)
        try:
            self._use = SoleUse(self._engine)
            with self.writing() as connection:
                _prepare(connection)
        except BaseException as error:
            self.close()
            if isinstance(error, OperationalError | OSError):
                why = error.orig if isinstance(error, OperationalError) else error.strerror
                raise ConfigError(f"the sandbox's database cannot be opened: {why}") from None
            raise

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that may write: committed at the end, undone by an exception."""
        # Who comes last waits at the turnstile, so that one who writes again and again lets others in.
        with self._turnstile:
            self._writer.acquire()
        try:
            with self._engine.connect().execution_options(writes=True) as connection, connection.begin():
                if connection.dialect.name == "postgresql":
                    connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _WRITERS})
                yield connection
        finally:
            self._writer.release()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with self._engine.connect() as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Close every connection; a temporary file goes."""
        self._engine.dispose()
        if self._use is not None:
            self._use.end()
        if self._folder is not None:
            self._folder.cleanup()


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        more: dict[str, Any] = {}
        if parsed.get_backend_name() == "sqlite":
            _make_private(_file(parsed))
            more["connect_args"] = {"timeout": 30, "check_same_thread": False}
        engine = create_engine(parsed, hide_parameters=True, **more)
    except (ArgumentError, ModuleNotFoundError) as error:
        raise ConfigError(f"the sandbox's database URL cannot be used: {error}") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
    return engine


def _file(parsed: URL) -> Path:
    path = parsed.database
    if not path or path == ":memory:" or path.startswith("file:"):
        raise ConfigError(
            "the sandbox's database URL must name a file, sqlite:///FILE; sqlite:// takes a temporary one"
        )
    return Path(path)


def _make_private(path: Path) -> None:
    """A new file is its owner's alone: it holds the keys. An error is told by the first connection."""
    with suppress(OSError):
        path.touch(mode=0o600)


def _on_connect(connection: Any, _: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves
    for setting in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}")


def _on_begin(connection: Connection) -> None:
    # A writer takes its lock at once: one that reads first could find that it may not write any more.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _prepare(connection: Connection) -> None:
    """Make the tables, or see that they are those of this version."""
    have = connection.dialect.has_table(connection, access.setting.name)
    metadata.create_all(connection)
    wanted = _fingerprint(connection)
    found = facts.recall(connection, _FINGERPRINT)
    if found is None and not have:
        facts.remember(connection, _FINGERPRINT, wanted)
    elif found != wanted:
        raise ConfigError(
            "the sandbox's database was made by another version of billhook: give an empty one, "
            "or delete the file"
        )


def _fingerprint(connection: Connection) -> str:
    made = [str(CreateTable(table).compile(connection)) for table in metadata.sorted_tables]
    made += [
        str(CreateIndex(index).compile(connection))
        for table in metadata.sorted_tables
        for index in sorted(table.indexes, key=lambda index: str(index.name))
    ]
    return hashlib.sha256("\n".join(made).encode()).hexdigest()
