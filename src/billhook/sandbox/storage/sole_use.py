"""One sandbox to a database: two would send everything twice, and each has a clock of its own."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy import Connection, Engine, text

from billhook.errors import ConfigError

__all__ = ["SoleUse"]

PATIENCE_SECONDS = 6.0
"""A server whose master was killed needs some seconds to find that out, and ends."""
_LOOK_SECONDS = 0.1
_NUMBER = 0x62696C6C  # of PostgreSQL's lock, with one for the schema: any that nobody else takes


class SoleUse:
    """The right to a database, until it is given back or the process ends, however it does."""

    def __init__(self, engine: Engine) -> None:
        """Take it; ConfigError if another sandbox has it, OSError if there is no place for a lock file."""
        self._descriptor: int | None = None
        self._connection: Connection | None = None
        if engine.dialect.name == "sqlite":
            path = f"{engine.url.database}.lock"
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            take = self._lock_file
        else:
            self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            take = self._lock_schema
        try:
            _insist(take)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Give it back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        if self._connection is not None:
            self._connection.invalidate()  # it is the session that has the lock
            self._connection.close()

    def _lock_file(self) -> bool:
        assert self._descriptor is not None  # noqa: S101 - for the type
        with suppress(BlockingIOError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def _lock_schema(self) -> bool:
        assert self._connection is not None  # noqa: S101 - for the type
        query = text("SELECT pg_try_advisory_lock(:number, hashtext(current_schema()))")
        return bool(self._connection.execute(query, {"number": _NUMBER}).scalar_one())


def _insist(take: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not take():
        if time.monotonic() > ends_at:
            raise ConfigError(
                "another sandbox is using this database: stop it, or give this one a database of its own"
            )
        time.sleep(_LOOK_SECONDS)
