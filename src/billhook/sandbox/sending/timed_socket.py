"""Sockets under one deadline, for http.client."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

__all__ = ["Deadline", "Dialled", "TimedSocket"]

SEND_BYTES = 65_536


class Deadline:
    """A moment by which all must be done."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def left(self) -> float:
        """The seconds until then; TimeoutError if there are none."""
        seconds = self._ends - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    def within(self, seconds: float) -> Deadline:
        """This one, or another in so many seconds: whichever is first."""
        return Deadline(min(self._ends - time.monotonic(), seconds))


class TimedSocket(io.RawIOBase):
    """A socket as http.client uses it, whose every wait ends at one deadline, however many there are.

    A timeout of the socket itself is for each wait anew: who sends a byte now and then would never be late.
    """

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection = connection
        self.deadline = deadline

    def sendall(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self._connection.settimeout(self.deadline.left())
            left = left[self._connection.send(left[:SEND_BYTES]) :]

    def makefile(self, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(self.deadline.left())
        return self._connection.recv_into(buffer)

    def close(self) -> None:
        """Left to whoever opened the socket: http.client closes before it has read all."""


class Dialled(http.client.HTTPConnection):
    """A connection that is there already: its name is never looked up again."""

    def __init__(self, host: str, port: int, timed: TimedSocket) -> None:
        super().__init__(host, port)
        self._timed = timed

    def connect(self) -> None:
        self.sock = self._timed
