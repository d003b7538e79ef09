"""The waker on SQLite: named pipes in a folder beside the file wake processes that wait for deliveries.

Each process that waits has a pipe of its own, for as long as it waits: level-triggered, so that an unread
byte wakes it at once. A process that only watches has another one, and takes nothing from a worker.

Without a reader a notification is lost, which is harmless: everyone who waits also polls the inbox.
"""

from __future__ import annotations

import errno
import os
import posix
import stat
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

from billhook.basics.concurrency import reset_in_child, wait_readable

_SETTLED_NS = 100_000_000
"""How old the time of a folder's last change is before a second change surely shows in it."""
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class FifoWaker:
    """`wake` in any process, `fileno` and `wait` in a worker; `wake` never raises."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        # In a child, not closed: at the fork a thread may have been between closing one and noting it.
        self._own: ListenerPipe | None = None
        self._opened: dict[str, int] = {}
        self._listed_at_ns = 0
        # A descriptor closed during another thread's write may be reused for a socket by then.
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Wake all that listen: by one system call each, and one that looks for new ones."""
        with self._lock:
            try:
                changed_at_ns = _own_folder_changed_at_ns(self._folder)
                if changed_at_ns != self._listed_at_ns:
                    complete = self._open_pipes()
                    # Two changes within a tick of the file system's clock have one time: look again.
                    settled = time.time_ns() - changed_at_ns > _SETTLED_NS
                    self._listed_at_ns = changed_at_ns if settled and complete else 0
            except OSError:  # no folder, as nothing has listened yet; or it is not readable here
                self._listed_at_ns = 0
            for name, descriptor in list(self._opened.items()):
                try:
                    # Not os.write: eventlet's tries for ever on a pipe without a reader.
                    posix.write(descriptor, b"!")
                except BlockingIOError:
                    pass  # the pipe is full of notifications already
                except OSError:
                    self._drop(name)

    def _open_pipes(self) -> bool:
        """Open the new pipes, and remove those without a reader; False if this process could not open one."""
        complete = True
        for path in self._folder.iterdir():
            if path.name not in self._opened and not path.name.startswith("."):
                try:
                    self._opened[path.name] = _open_to_notify(path)
                except OSError as error:
                    # Not for want of descriptors: who listens on it would not be woken any more.
                    if error.errno == errno.ENXIO:
                        self._drop(path.name)
                    complete = complete and error.errno not in _SHORTAGES
        return complete

    def _drop(self, name: str) -> None:
        """Remove the pipe of one that has ended, which a killed process has left."""
        descriptor = self._opened.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)
        path = self._folder / name
        with suppress(OSError):
            if stat.S_ISFIFO(path.lstat().st_mode):
                path.unlink()

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until a notification or the end of the time; True for the former. Raises OSError."""
        return self._listening().wait(timeout_seconds)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable on a notification. Raises OSError."""
        return self._listening().descriptor

    def _listening(self) -> ListenerPipe:
        if self._own is not None and os.fstat(self._own.descriptor).st_nlink == 0:
            self._own.close()  # the pipe was deleted, so that no waker finds it
            self._own = None
        if self._own is None:
            self.wake()  # which removes what killed processes have left, without any delivery too
            self._own = self.listener()
        return self._own

    def listener(self) -> ListenerPipe:
        """Return a listener with a pipe of its own. Raises OSError."""
        return ListenerPipe(self._folder)

    def close(self) -> None:
        """Close all ends in this process, and remove its own pipe."""
        with self._lock:
            for descriptor in self._opened.values():
                os.close(descriptor)
            self._opened.clear()
            self._listed_at_ns = 0
        if self._own is not None:
            self._own.close()
            self._own = None


class ListenerPipe:
    """A pipe of one listener, which exists as long as the listener listens."""

    def __init__(self, folder: Path) -> None:
        """Make the pipe. Raises OSError."""
        folder.mkdir(mode=0o700, exist_ok=True)
        _own_folder_changed_at_ns(folder)
        name = uuid.uuid4().hex
        self._path = folder / name
        # Under a hidden name until it has a reader: a waker removes a pipe that has none.
        hidden = folder / f".{name}"
        os.mkfifo(hidden, 0o600)
        # Read and write: the pipe then never reports end of file when the last writer closes it.
        self.descriptor = os.open(hidden, os.O_RDWR | os.O_NONBLOCK)
        hidden.rename(self._path)

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until a notification or the end of the time; True for the former."""
        ready = wait_readable((self.descriptor,), max(0.0, timeout_seconds))
        if ready:
            with suppress(BlockingIOError):  # another thread read the byte first
                os.read(self.descriptor, 65_536)
        return bool(ready)

    def close(self) -> None:
        """Stop listening; the pipe is removed, and the folder with the last one."""
        with suppress(OSError):
            self._path.unlink()
            # Another process that makes a pipe at this moment fails, and tries again before its next wait.
            self._path.parent.rmdir()
        os.close(self.descriptor)


def _open_to_notify(path: Path) -> int:
    """Open a named pipe that has a reader, and nothing else: others may plant links in the folder."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a pipe: remove it")
    return descriptor


def _own_folder_changed_at_ns(path: Path) -> int:
    """Return when the folder of listeners was changed; OSError for a link, or the folder of a stranger.

    Root also notifies the workers of the user whose folder the inbox is in.
    """
    found = path.lstat()
    users = {os.geteuid(), 0, path.parent.stat().st_uid if os.geteuid() == 0 else 0}
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in users:
        raise OSError(f"{path} is not a folder of this user: remove it")
    return found.st_mtime_ns
