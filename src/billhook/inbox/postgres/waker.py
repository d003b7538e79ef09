"""The waker on PostgreSQL: NOTIFY after each commit, and a connection that only LISTENs.

Through a pooler nothing is heard, for LISTEN needs a session of its own; NOTIFY passes, for other listeners.
Once in a while it is tried again: the address may lead to the server itself by then.
The notification is not part of the insert: transactions that notify commit one after another.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql

from billhook.basics.concurrency import reset_in_child, wait_readable
from billhook.inbox.postgres.driver import DeadlineConnection, reason

_CHANNEL = "'billhook_' || %s::regclass::oid"
"""One channel for each inbox, by its table: a database may have several, in schemas of their own."""
_DEAF = "a pooler is in between, which passes no notifications on"
DEAF_SECONDS = 60.0
"""How long a pooler is taken to be in between after one was met."""
PAUSE_SECONDS = 2.0
"""Pause between two attempts to connect: an attempt may take as long."""

Connect = Callable[[], DeadlineConnection]


@dataclass(eq=False, repr=False)
class ReconnectingConnection:
    """A connection opened at first use, and again after it was lost, at most every PAUSE_SECONDS.

    It calls `opened` with each new connection before its first use.
    """

    connect: Connect
    opened: Callable[[DeadlineConnection], object]

    def __post_init__(self) -> None:
        self._connection: DeadlineConnection | None = None
        self._not_before = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def use(self) -> Iterator[DeadlineConnection]:
        """Use the connection, one thread at a time. Raises OSError while there is none, or if it fails."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._open()
                yield self._connection
            except (psycopg.Error, OSError) as error:
                self._close()
                raise OSError(f"the waker's connection failed: {reason(error)}") from None

    def close(self) -> None:
        """Close it; the next use opens it again."""
        with self._lock:
            self._close()
            self._not_before = 0.0

    def _open(self) -> DeadlineConnection:
        if time.monotonic() < self._not_before:
            raise OSError("it was tried just now")
        try:
            # Under the lock, as two threads would open two connections.
            self._connection = self.connect()
            self.opened(self._connection)
        finally:
            self._not_before = time.monotonic() + PAUSE_SECONDS
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


@dataclass(eq=False, repr=False)
class PostgresWaker:
    """`notify`, `fileno` and `wait` from any thread. Lost connections are opened again.

    `connect` opens a connection with autocommit; `table` is the name of a table of the inbox.
    """

    connect: Connect
    table: str

    def __post_init__(self) -> None:
        self._deaf_until = -math.inf
        self._parents_connections: list[ReconnectingConnection] = []
        self._reset()
        reset_in_child(self._reset_in_child)

    def _reset(self) -> None:
        self._notifying = ReconnectingConnection(self.connect, lambda _: None)
        self._listening = ReconnectingConnection(self.connect, self._subscribe)

    def _reset_in_child(self) -> None:
        # Kept open: closing the copies here would end the parent's sessions.
        self._parents_connections += (self._notifying, self._listening)
        self._reset()

    def wake(self) -> None:
        """Wake every listener; never raises."""
        # A lost notification costs a poll interval; an error here would cost an accepted delivery its 200.
        with suppress(OSError), self._notifying.use() as connection:
            connection.execute(f"SELECT pg_notify({_CHANNEL}, '')", [self.table])

    def fileno(self) -> int:
        """Return the descriptor of the listening connection. Raises OSError while there is none."""
        if time.monotonic() < self._deaf_until:
            raise OSError(_DEAF)
        with self._listening.use() as connection:
            return connection.fileno()

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until a notification or the end of the time; True for the former. Raises OSError."""
        # Polled outside the lock: a listener sleeps for long, and `fileno` must not wait for it.
        if not wait_readable((self.fileno(),), max(0.0, timeout_seconds)):
            return False
        with self._listening.use() as connection:
            return bool(list(connection.notifies(timeout=0)))

    def listener(self) -> PostgresWaker:
        """Return a listener with a connection of its own, so that it takes no notification from an engine.

        Raises OSError behind a pooler.
        """
        listener = PostgresWaker(self.connect, self.table)
        with suppress(OSError):  # tried again at each wait
            listener.fileno()
        if time.monotonic() < listener._deaf_until:
            raise OSError(_DEAF)
        return listener

    def close(self) -> None:
        """Close both connections of this process."""
        self._notifying.close()
        self._listening.close()

    def _subscribe(self, connection: DeadlineConnection) -> None:
        if connection.is_pooled:
            self._deaf_until = time.monotonic() + DEAF_SECONDS
            raise OSError(_DEAF)
        ((channel,),) = connection.execute(f"SELECT {_CHANNEL}", [self.table]).fetchall()
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
