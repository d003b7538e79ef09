"""Opening the sandbox's database, and the two kinds of transaction on it."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, event

from billhook.errors import ConfigError
from billhook.sandbox.refusals import unavailable
from billhook.sandbox.storage.engines import file_of, open_engine, opening, single_session
from billhook.sandbox.storage.preparing import prepare
from billhook.sandbox.storage.sole_use import FileLock

__all__ = ["Database"]


class Database:
    """An open database.

    One transaction writes at a time, on PostgreSQL as well: so rules that look before they act hold.
    """

    def __init__(self, url: str, on_loss: Callable[[], None] = lambda: None) -> None:
        """Open it, with its tables made if there are none; ConfigError if it cannot be used.

        It is this one's alone until it is closed, or until PostgreSQL ends the session and another takes
        it: `on_loss` is called then, and every transaction is refused.
        """
        self._folder = None
        self._lock: FileLock | None = None
        self._on_loss = on_loss
        self._is_lost = False
        self.times_taken = 0
        """Goes up when the right to it was taken: what was known of its rows may be wrong since."""
        if url == "sqlite://":
            self._folder = tempfile.TemporaryDirectory(prefix="billhook-sandbox-")
            url = f"sqlite:///{self._folder.name}/sandbox.db"
        self._turnstile, self._writer = threading.Lock(), threading.Lock()
        self._engine = self._writers = open_engine(url)
        try:
            with opening():
                self._take()
                with self.writing() as connection:
                    prepare(connection)
        except BaseException:
            self.close()
            raise

    def _take(self) -> None:
        if self._engine.dialect.name == "sqlite":
            self._lock = FileLock(file_of(self._engine.url))
            self.times_taken = 1
        else:
            self._writers = single_session(self._engine)
            event.listen(self._writers, "connect", self._on_taken)
            self._writers.connect().close()

    def _on_taken(self, *_: object) -> None:
        self.times_taken += 1

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that may write: committed at the end, undone by an exception."""
        # Who comes last waits at the turnstile, so that one who writes again and again lets others in.
        with self._turnstile:
            self._writer.acquire()
        try:
            with self._own_session().execution_options(writes=True) as connection, connection.begin():
                yield connection
        finally:
            self._writer.release()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        self._refuse_if_lost()
        with self._engine.connect() as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Close every connection; a temporary file goes."""
        self._engine.dispose()
        self._writers.dispose()
        if self._lock is not None:
            self._lock.end()
            self._lock = None
        if self._folder is not None:
            self._folder.cleanup()

    def _own_session(self) -> Connection:
        self._refuse_if_lost()
        try:
            return self._writers.connect()
        except ConfigError:  # the session had ended, and before it was begun anew another sandbox came
            self._is_lost = True
            self._on_loss()
            self._refuse_if_lost()
            raise

    def _refuse_if_lost(self) -> None:
        if self._is_lost:
            raise unavailable("another sandbox has taken the database of this one: stop one of them")
