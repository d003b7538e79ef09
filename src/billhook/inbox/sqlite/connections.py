"""The connections of one process to the SQLite file, opened at first use and closed all together."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from billhook.inbox.sqlite.driver import checkpoint_truncate, connect, new_engine
from billhook.inbox.sqlite.file import record_log_owner
from billhook.inbox.sqlite.write_lock import WriteLock

__all__ = ["Connections"]


class Connections:
    """Not thread-safe: the caller holds a lock."""

    def __init__(
        self, path: Path, busy_seconds: float, verify: Callable[[Connection], None], lock: WriteLock
    ) -> None:
        """`verify` is called in the first transaction and raises to refuse the file."""
        self._path = path
        self._busy_seconds = busy_seconds
        self._verify = verify
        self._lock = lock
        self._engine: Engine | None = None
        self._writer: Connection | None = None
        self.inserter: sqlite3.Connection | None = None
        self._log_is_ours = False

    def engine(self) -> Engine:
        """Return the engine, for reading."""
        if self._engine is None:
            engine = new_engine(self._path, self._busy_seconds)
            with engine.connect().execution_options(billhook_read=True) as connection:
                self._verify(connection)
            with suppress(OSError):  # a reader works without room on the disk
                record_log_owner(self._path)
            self._engine = engine
        return self._engine

    def writer(self) -> Connection:
        """Return the connection for transactions; the caller must hold the write lock."""
        if self._writer is None:
            self._writer = self._engine_to_write().connect()
        return self._writer

    def open_inserter(self) -> sqlite3.Connection:
        """Open the driver connection for single statements, kept as `inserter`."""
        with self._lock.held():
            self._engine_to_write()
        self.inserter = connect(self._path, busy_seconds=0)
        return self.inserter

    def _engine_to_write(self) -> Engine:
        engine = self.engine()
        # Write nothing behind what another process, or a failure, left in the log: see checkpoint_truncate.
        if not self._log_is_ours:
            checkpoint_truncate(self._path, self._busy_seconds)
            record_log_owner(self._path)
            self._log_is_ours = True
        return engine

    def discard(self) -> None:
        """Close them all after a failure; the next use opens them again and empties the log first."""
        self.close()
        self._log_is_ours = False

    def close(self) -> None:
        """Close them all in order; the next use opens them again."""
        with suppress(DBAPIError, sqlite3.Error):
            if self.inserter is not None:
                self.inserter.close()
            if self._writer is not None:
                self._writer.invalidate()
                self._writer.close()
        self._writer = self.inserter = None
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
