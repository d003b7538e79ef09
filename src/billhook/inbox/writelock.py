"""A lock between processes that the kernel hands on at once, where SQLite would sleep and try again."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from billhook.errors import InboxUnavailable

__all__ = ["WriteLock"]


class WriteLock:
    """flock on a file beside the inbox; gone with the process that held it, however that ended.

    The file's one byte, mapped into every process, says that a long transaction holds the lock or is
    about to begin: reading it costs no system call. A byte left behind by a process that was killed
    is put right by the next holder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._byte: mmap.mmap | None = None

    @property
    def announced(self) -> bool:
        """Whether somebody holds it for a long transaction."""
        return self._byte is not None and self._byte[0] != 0

    @contextmanager
    def held(self, *, announce: bool) -> Iterator[None]:
        """Hold it; raises InboxUnavailable when the lock file cannot be opened."""
        try:
            descriptor, byte = self._open()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise InboxUnavailable(f"the lock {self._path} failed: {error.strerror}") from None
        try:
            byte[0] = announce
            yield
        finally:
            byte[0] = False
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _open(self) -> tuple[int, mmap.mmap]:
        if self._descriptor is None or self._byte is None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if os.fstat(descriptor).st_size < 1:
                    os.posix_fallocate(descriptor, 0, 1)  # a full disk says so here, not as a SIGBUS later
                self._byte = mmap.mmap(descriptor, 1)
            except OSError:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
        return self._descriptor, self._byte

    def close(self) -> None:
        """Close this process's descriptor. After a fork too: a child's copy would keep the lock alive."""
        if self._byte is not None:
            self._byte.close()
            self._byte = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
