"""The waker on SQLite: named pipes beside the file wake processes that wait for deliveries.

All workers share one pipe. Level-triggered: an unread byte wakes the next reader at once. The first that
reads it takes it from the others, which is harmless, because it finds all the work. A listener that only
watches must take nothing from a worker, so each has a pipe of its own, in a folder beside the file.

Without a reader a notification is lost, which is harmless too: everyone who waits also polls the inbox.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

from billhook.concurrency import reset_in_child, wait_readable

NO_READER_SECONDS = 0.1
"""How long the pipe is taken to have no reader after it had none."""
_SETTLED_NS = 100_000_000
"""How old the time of a folder's last change is before a second change surely shows in it."""


class FifoWaker:
    """`notify` from any process, `wait` in a worker; `notify` never raises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.with_name(f"{path.name}.d")
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        # In a child, not closed: at the fork a thread may have been between closing one and noting it.
        self._notifying: int | None = None
        self._listening: int | None = None
        self._no_reader_until = 0.0
        self._listeners: dict[str, int] = {}
        self._listed_at_ns = 0
        # A descriptor closed during another thread's write may be reused for a socket by then.
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Wake the workers, by one system call, and the listeners."""
        with self._lock:
            if time.monotonic() >= self._no_reader_until:
                try:
                    if self._notifying is None:
                        self._notifying = _open_pipe(self._path, os.O_WRONLY)
                    os.write(self._notifying, b"!")
                except BlockingIOError:
                    pass  # the pipe is full of notifications already
                except OSError:
                    # No pipe, or no reader (ENXIO, EPIPE). A worker that starts later polls before it waits.
                    self._close()
                    self._no_reader_until = time.monotonic() + NO_READER_SECONDS
            self._notify_listeners()

    def _notify_listeners(self) -> None:
        try:
            changed_at_ns = _own_folder_changed_at_ns(self._folder)
            if changed_at_ns != self._listed_at_ns:
                self._open_listeners()
                # Two changes within a tick of the file system's clock have one time: look again until then.
                settled = time.time_ns() - changed_at_ns > _SETTLED_NS
                self._listed_at_ns = changed_at_ns if settled else 0
        except OSError:  # no folder, as nothing has listened yet; or it is not readable here
            return
        for name, descriptor in list(self._listeners.items()):
            try:
                os.write(descriptor, b"!")
            except BlockingIOError:
                pass
            except OSError:
                self._drop(name)

    def _open_listeners(self) -> None:
        for path in self._folder.iterdir():
            if path.name not in self._listeners and not path.name.startswith("."):
                try:
                    self._listeners[path.name] = _open_pipe(path, os.O_WRONLY)
                except OSError:
                    self._drop(path.name)

    def _drop(self, name: str) -> None:
        """Remove a listener that has ended, and the pipe that a killed one left."""
        descriptor = self._listeners.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)
        path = self._folder / name
        with suppress(OSError):
            if stat.S_ISFIFO(path.lstat().st_mode):
                path.unlink()

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until a notification or the end of the time; True for the former."""
        return _wait(self.fileno(), timeout_seconds)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable on a notification."""
        if self._listening is None:
            with suppress(FileExistsError):
                os.mkfifo(self._path, 0o600)
            # Read and write: the pipe then never reports end of file when the last writer closes it.
            self._listening = _open_pipe(self._path, os.O_RDWR)
        return self._listening

    def listener(self) -> ListenerPipe:
        """Return a listener with a pipe of its own. Raises OSError."""
        return ListenerPipe(self._folder)

    def close(self) -> None:
        """Close all ends in this process; the pipes stay for the others."""
        with self._lock:
            self._close()
            for descriptor in self._listeners.values():
                os.close(descriptor)
            self._listeners.clear()
            self._listed_at_ns = 0
        if self._listening is not None:
            os.close(self._listening)
            self._listening = None

    def _close(self) -> None:
        if self._notifying is not None:
            os.close(self._notifying)
            self._notifying = None


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
        self._descriptor = os.open(hidden, os.O_RDWR | os.O_NONBLOCK)
        hidden.rename(self._path)

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until a notification or the end of the time; True for the former."""
        return _wait(self._descriptor, timeout_seconds)

    def close(self) -> None:
        """Stop listening; the pipe is removed."""
        with suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)


def _open_pipe(path: Path, access: int) -> int:
    """Open a named pipe, and nothing else: others may write into the folder and plant links there."""
    try:
        descriptor = os.open(path, access | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(f"{path} is not a pipe: remove it") from None
        raise
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a pipe: remove it")
    return descriptor


def _own_folder_changed_at_ns(path: Path) -> int:
    """Return when the folder of listeners was changed; OSError for a link, or the folder of another user."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
        raise OSError(f"{path} is not a folder of this user: remove it")
    return found.st_mtime_ns


def _wait(descriptor: int, timeout_seconds: float) -> bool:
    ready = wait_readable((descriptor,), max(0.0, timeout_seconds))
    if ready:
        with suppress(BlockingIOError):  # another worker read the byte first; this one is awake too
            os.read(descriptor, 65_536)
    return bool(ready)
