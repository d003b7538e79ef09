"""A write lock between processes: the kernel passes it on at once, where SQLite would sleep and retry."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from billhook.errors import InboxUnavailable

__all__ = ["WriteLock"]


class WriteLock:
    """flock on a file beside the inbox; the kernel releases it when its process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock in the block. Raises InboxUnavailable when the lock file cannot be opened."""
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise InboxUnavailable(f"the lock {self._path} failed: {error.strerror}") from None
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close this process's descriptor. After a fork too: a child's copy would keep the lock held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
