"""One sandbox to a database: two would send everything twice, and each has a clock of its own.

The right to it ends with whoever has it, however that ends: a file's with the process, a schema's with the
session, which is therefore the only one that may write.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from billhook.errors import ConfigError

__all__ = ["FileLock", "take_with_each_session"]

logger = logging.getLogger("billhook.sandbox")

PATIENCE_SECONDS = 6.0
"""A server whose master was killed needs some seconds to find that out, and ends."""
_LOOK_SECONDS = 0.1
_NUMBER = 0x62696C6C  # of PostgreSQL's lock, with one for the schema: any that nobody else takes


class FileLock:
    """The right to a file of SQLite, until it is given back."""

    def __init__(self, path: Path) -> None:
        """Take it; ConfigError if another sandbox has it, OSError if there is no place for a lock file."""
        self._descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _insist(self._take)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Give it back."""
        os.close(self._descriptor)

    def _take(self) -> bool:
        with suppress(BlockingIOError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False


def take_with_each_session(engine: Engine) -> None:
    """Let no session of `engine` begin without the right to its schema: ConfigError if another has it."""
    event.listen(engine, "connect", _take_schema)


def _take_schema(session: Any, _: object) -> None:
    # A search path may name no schema: that is for whoever makes the tables to find.
    query = f"SELECT pg_try_advisory_lock({_NUMBER}, coalesce(hashtext(current_schema()), 0))"
    try:
        _insist(lambda: bool(session.execute(query).fetchone()[0]))
        session.commit()
    except BaseException:
        session.close()
        raise


def _insist(take: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + PATIENCE_SECONDS
    told = False
    while not take():
        if not told:
            logger.warning(
                "another sandbox is using this database: waiting for it to end, %g s at most",
                PATIENCE_SECONDS,
            )
            told = True
        if time.monotonic() > ends_at:
            raise ConfigError(
                "another sandbox is using this database: stop it, or give this one a database of its own"
            )
        time.sleep(_LOOK_SECONDS)
