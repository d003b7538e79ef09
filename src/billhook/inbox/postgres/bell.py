"""The bell on PostgreSQL: NOTIFY after each commit, and a connection that does nothing but LISTEN.

The notification is no part of the insert: transactions that notify commit one after another.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

__all__ = ["PostgresBell"]

CHANNEL = "billhook"
DEAF_SECONDS = 2.0
"""How long no new connection is tried after one could not be had: each try may take as long."""


class PostgresBell:
    """`ring` from any thread, `listen` and `wait` in one. Lost connections are opened again."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        """`connect` opens a connection with autocommit."""
        self._connect = connect
        self._ringing: psycopg.Connection[Any] | None = None
        self._listening: psycopg.Connection[Any] | None = None
        self._deaf_until = 0.0
        self._dumb_until = 0.0
        self._lock = threading.Lock()

    def ring(self) -> None:
        """Wake whoever waits; never raises."""
        with self._lock:
            if time.monotonic() < self._dumb_until:
                return
            try:
                if self._ringing is None:
                    self._ringing = self._connect()
                self._ringing.execute("SELECT pg_notify(%s, '')", [CHANNEL])
            except psycopg.Error:
                self._dumb_until = time.monotonic() + DEAF_SECONDS
                self._hang_up()

    def listen(self) -> int:
        """The descriptor of the listening connection. Raises OSError while the server is not there."""
        if self._listening is None:
            if time.monotonic() < self._deaf_until:
                raise OSError("the bell's connection is down")
            try:
                self._listening = self._connect()
                self._listening.execute(f"LISTEN {CHANNEL}")
            except psycopg.Error as error:
                self._give_up()
                raise OSError(f"the bell's connection failed: {error}") from None
        return self._listening.fileno()

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until the bell rings or the time is over; True if it rang. Raises OSError like `listen`."""
        poll = select.poll()
        poll.register(self.listen(), select.POLLIN)
        if not poll.poll(max(0.0, timeout_seconds) * 1000) or self._listening is None:
            return False
        try:
            return bool(list(self._listening.notifies(timeout=0)))
        except psycopg.Error as error:
            self._give_up()
            raise OSError(f"the bell's connection failed: {error}") from None

    def _give_up(self) -> None:
        self._deaf_until = time.monotonic() + DEAF_SECONDS
        listening, self._listening = self._listening, None
        if listening is not None:
            with suppress(psycopg.Error):
                listening.close()

    def close(self) -> None:
        """Close both connections of this process."""
        with self._lock:
            self._hang_up()
        self._give_up()
        self._deaf_until = 0.0

    def _hang_up(self) -> None:
        ringing, self._ringing = self._ringing, None
        if ringing is not None:
            with suppress(psycopg.Error):
                ringing.close()
