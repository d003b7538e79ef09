"""The lock that gives one sandbox at a time the use of a database.

Two sandboxes would send every webhook twice, and each has its own clock. The lock ends with its holder: a
file's with the process, a PostgreSQL schema's with the session, which is therefore the only one that writes.
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

__all__ = ["FileLock", "lock_each_session"]

logger = logging.getLogger("billhook.sandbox")

LOCK_TIMEOUT_SECONDS = 6.0
"""How long to wait for the lock: a gunicorn worker whose master was killed ends after some seconds."""
_LOOK_SECONDS = 0.1
_NUMBER = 0x62696C6C  # "bill": half of the advisory lock's key, the other half is the schema


class FileLock:
    """An exclusive lock on a SQLite file, until it is released."""

    def __init__(self, path: Path) -> None:
        """Acquire it; ConfigError if another sandbox holds it, OSError if no lock file can be made."""
        self._descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _acquire(self._take)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)

    def _take(self) -> bool:
        with suppress(BlockingIOError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False


def lock_each_session(engine: Engine) -> None:
    """Acquire the schema's lock in every new session of `engine`; ConfigError if another sandbox holds it."""
    event.listen(engine, "connect", _take_schema)


def _take_schema(session: Any, _: object) -> None:
    # The search path may name no schema; creating the tables will report that.
    query = f"SELECT pg_try_advisory_lock({_NUMBER}, coalesce(hashtext(current_schema()), 0))"
    try:
        _acquire(lambda: bool(session.execute(query).fetchone()[0]))
        session.commit()
    except BaseException:
        session.close()
        raise


def _acquire(take: Callable[[], bool]) -> None:
    # Polled, because flock() has no time-out.
    ends_at = time.monotonic() + LOCK_TIMEOUT_SECONDS
    has_warned = False
    while not take():
        if not has_warned:
            logger.warning(
                "another sandbox is using this database: waiting for it to end, %g s at most",
                LOCK_TIMEOUT_SECONDS,
            )
            has_warned = True
        if time.monotonic() > ends_at:
            raise ConfigError(
                "another sandbox is using this database: stop it, or give this one a database of its own"
            )
        time.sleep(_LOOK_SECONDS)
