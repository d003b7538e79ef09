"""Two locks that SQLite lacks: between processes that write, and between a fork and work in progress.

Writing: the kernel passes its lock on at once, where SQLite would sleep and retry.

Forking: SQLite keeps the file locks of a process in its memory, by file, for all of its connections. A forked
child gets a copy: what another thread of its parent was reading at that moment stays locked there for ever,
for the connections that the child itself opens too. So a fork waits for the work in progress and closes the
open connections; the next use opens them again.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakMethod

from billhook.errors import InboxUnavailable
from billhook.threads import around_fork

_LOCKS = Path("/proc/locks")


class Holding:
    """Whether this process holds the write lock of a file: a worker's watchdog asks, and is notified."""

    def __init__(self) -> None:
        self.now = False
        self.changed: Callable[[], object] | None = None
        """Called in the thread that holds the lock, after it took it and before it releases it."""

    def set(self, now: bool) -> None:
        """Note that the lock is held, or about to be released."""
        self.now = now
        if self.changed is not None:
            self.changed()


HOLDING = Holding()


class WriteLock:
    """flock on a file beside the inbox; the kernel releases it when its process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._identity: tuple[int, int, int] | None = None
        """The lock file's device, as two numbers, and inode: later looks must not wait for the disk."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock in the block. Raises InboxUnavailable when the lock file cannot be opened."""
        try:
            if self._descriptor is None:
                # O_NOFOLLOW: a link here would make this process create or lock any file of its user's.
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
                status = os.fstat(self._descriptor)
                self._identity = os.major(status.st_dev), os.minor(status.st_dev), status.st_ino
            # Without a time limit: its holder has SQLite's lock for one transaction, or dies and frees both.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise InboxUnavailable(f"the lock {self._path} failed: {error.strerror}") from None
        try:
            HOLDING.set(True)
            yield
        finally:
            try:
                HOLDING.set(False)
            finally:  # also if the notified fails: no other process could write any more
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def holder(self) -> int | None:
        """Return the id of the process that holds the lock; None if none does, or it is not told.

        Source: proc_locks(5), of Linux alone; it hides processes outside of this container.
        """
        if self._identity is None:
            return None
        try:
            lines = _LOCKS.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError, MemoryError):
            return None
        major, minor, inode = self._identity
        for line in lines:
            # `1: FLOCK ADVISORY WRITE 4711 fe:01:1234 0 EOF`; one that waits has `->` after the number.
            parts = line.split()
            if len(parts) < 6 or parts[1] != "FLOCK" or not parts[5].endswith(f":{inode}"):
                continue
            # Layered file systems tell another device there than stat() does; it has no major number.
            if parts[5].startswith((f"{major:02x}:{minor:02x}:", "00:")) and int(parts[4]) > 0:
                return int(parts[4])
        return None

    def close(self) -> None:
        """Close this process's descriptor. After a fork too: a child's copy would keep the lock held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


# --- fork ---------------------------------------------------------------------------------------------

_LONGEST_SECONDS = 3.0
"""Longer than any response may take: work that takes longer hangs, and a fork must not hang with it."""


class _Depth(threading.local):
    """How many blocks of `at_work` this thread is in."""

    value = 0


class ForkGuard:
    """Counts the threads at work with SQLite: one guard for all files, as a fork copies them all."""

    def __init__(self) -> None:
        self._closers: list[WeakMethod[Callable[[], None]]] = []
        self._depth = _Depth()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._forking = False
        self._inside = int(self._depth.value > 0)

    def before_fork(self, close: Callable[[], None]) -> None:
        """Call this method before each fork, while no thread is at work; held weakly."""
        self._closers = [closer for closer in self._closers if closer() is not None] + [WeakMethod(close)]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Hold forks back during the block; wait for a fork that is in progress."""
        depth = self._depth.value
        if not depth:
            with self._lock:  # by itself, as the condition's own methods would take most of the time
                if self._forking:
                    self._changed.wait_for(lambda: not self._forking, _LONGEST_SECONDS)
                self._inside += 1
        self._depth.value = depth + 1
        try:
            yield
        finally:
            self._depth.value = depth
            # By depth: the blocks of one thread may nest, and only the outermost one counts.
            if not depth:
                with self._lock:
                    self._inside -= 1
                    if self._forking:
                        self._changed.notify_all()

    def before(self) -> None:
        """Wait until no thread is at work, and keep it so. Called in the thread that forks."""
        # A thread may fork in the middle of its own work: it must not wait for itself, and nothing is closed.
        own = int(self._depth.value > 0)
        with self._changed:
            self._forking = True
            quiet = self._changed.wait_for(lambda: self._inside <= own, _LONGEST_SECONDS)
        if quiet and not own:
            for close in [closer() for closer in self._closers]:
                if close is not None:
                    close()

    def after_in_parent(self) -> None:
        """Release the threads that wait for the fork to be over."""
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def after_in_child(self) -> None:
        """Start over: the child has no other thread."""
        self._reset()


FORK_GUARD = ForkGuard()
around_fork(FORK_GUARD.before, FORK_GUARD.after_in_parent, FORK_GUARD.after_in_child)
