"""The bell on PostgreSQL: NOTIFY after each commit, and a connection that does nothing but LISTEN.

The notification is no part of the insert: transactions that notify commit one after another.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql

from billhook.inbox.postgres.driver import reason

__all__ = ["PostgresBell"]

CHANNEL = "'billhook_' || 'delivery'::regclass::oid"
"""One for each inbox: a database may have several, in schemas of their own."""
PAUSE_SECONDS = 2.0
"""After the opening of a connection, well or not, until the next: to try may take as long."""

Connect = Callable[[], psycopg.Connection[Any]]


class _Line:
    """A connection that is opened at need, and again when it was lost; but not all the time."""

    def __init__(self, connect: Connect, opened: Callable[[psycopg.Connection[Any]], object]) -> None:
        """`opened` is called with each new connection, before anybody uses it."""
        self._connect = connect
        self._opened = opened
        self._connection: psycopg.Connection[Any] | None = None
        self._not_before = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def use(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection, for one thread at a time. Raises OSError while there is none, or if it fails."""
        with self._lock:
            try:
                yield self._open()
            except (psycopg.Error, OSError) as error:
                self._hang_up()
                raise OSError(f"the bell's connection failed: {reason(error)}") from None

    def close(self) -> None:
        """Close it; the next use opens it again."""
        with self._lock:
            self._hang_up()
            self._not_before = 0.0

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            if time.monotonic() < self._not_before:
                raise OSError("it was tried just now")
            try:
                self._connection = self._connect()
                self._opened(self._connection)
            finally:
                self._not_before = time.monotonic() + PAUSE_SECONDS
        return self._connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class PostgresBell:
    """`ring`, `listen` and `wait` from any thread. Lost connections are opened again."""

    def __init__(self, connect: Connect) -> None:
        """`connect` opens a connection with autocommit."""
        self._ringing = _Line(connect, lambda _: None)
        self._listening = _Line(connect, _listen)

    def ring(self) -> None:
        """Wake whoever waits; never raises."""
        with suppress(OSError), self._ringing.use() as connection:
            connection.execute(f"SELECT pg_notify({CHANNEL}, '')")

    def listen(self) -> int:
        """The descriptor of the listening connection. Raises OSError while the server is not there."""
        with self._listening.use() as connection:
            return connection.fileno()

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until the bell rings or the time is over; True if it rang. Raises OSError like `listen`."""
        poll = select.poll()
        poll.register(self.listen(), select.POLLIN)
        if not poll.poll(max(0.0, timeout_seconds) * 1000):
            return False
        with self._listening.use() as connection:
            return bool(list(connection.notifies(timeout=0)))

    def close(self) -> None:
        """Close both connections of this process."""
        self._ringing.close()
        self._listening.close()


def _listen(connection: psycopg.Connection[Any]) -> None:
    ((channel,),) = connection.execute(f"SELECT {CHANNEL}").fetchall()
    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
