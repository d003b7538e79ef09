"""The connections of one process to the file, opened at need and forgotten as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from billhook.inbox.sqlite.driver import begin_log_anew, connect, new_engine
from billhook.inbox.sqlite.pairing import note_pair
from billhook.inbox.sqlite.writelock import WriteLock

__all__ = ["Opened"]


class Opened:
    """For one thread at a time."""

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
        self._inserter: sqlite3.Connection | None = None
        self._log_is_ours = False

    def engine(self) -> Engine:
        """For reading."""
        if self._engine is None:
            engine = new_engine(self._path, self._busy_seconds)
            with engine.connect().execution_options(billhook_read=True) as connection:
                self._verify(connection)
            with suppress(OSError):  # who only reads needs no room on the disk
                note_pair(self._path)
            self._engine = engine
        return self._engine

    def writer(self) -> Connection:
        """For transactions; the caller must hold the write lock."""
        if self._writer is None:
            self._writer = self._engine_to_write().connect()
        return self._writer

    def inserter(self) -> sqlite3.Connection:
        """For single statements."""
        if self._inserter is None:
            with self._lock.held():
                self._engine_to_write()
            self._inserter = connect(self._path, busy_seconds=0)
        return self._inserter

    def _engine_to_write(self) -> Engine:
        """Nothing is written behind what another process, or a failure, left in the log."""
        engine = self.engine()
        if not self._log_is_ours:
            begin_log_anew(self._path, self._busy_seconds)
            note_pair(self._path)
            self._log_is_ours = True
        return engine

    def forget(self) -> None:
        """Close them all; the next use opens them again, and trusts nothing."""
        self.close()
        self._log_is_ours = False

    def close(self) -> None:
        """Close them all; the next use opens them again. In order: nothing has failed."""
        with suppress(DBAPIError, sqlite3.Error):
            if self._inserter is not None:
                self._inserter.close()
            if self._writer is not None:
                self._writer.invalidate()
                self._writer.close()
        self._writer = self._inserter = None
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
