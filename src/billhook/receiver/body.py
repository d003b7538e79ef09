"""Read a body from WSGI exactly once: completely, or fail.

The framework is too lenient for this: Werkzeug silently truncates a chunked body at MAX_CONTENT_LENGTH, and
a short body followed by a half-close looks complete. So the raw stream is read up to one byte more than the
limit, and the length is compared.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from billhook.errors import BodyIncomplete, BodyTooLarge
from billhook.fork import reset_in_child
from billhook.threads import start_thread

__all__ = [
    "DRAIN_BYTES",
    "BodyDeadline",
    "check_length",
    "close_connection",
    "declared_length",
    "drain",
    "read_body",
]

DRAIN_BYTES = 1024 * 1024
"""How much of a rejected body is read at most, so that its sender reads the response."""


def read_body(environ: Mapping[str, Any], limit_bytes: int) -> bytes:
    """The exact bytes of the body. Raises BodyTooLarge or BodyIncomplete, nothing else."""
    expected = declared_length(environ.get("CONTENT_LENGTH") or "", limit_bytes)
    if expected is None and not environ.get("wsgi.input_terminated"):
        return b""  # no length and no end: there is no body (RFC 9112, section 6.3)
    # Chunked: the server marks the end, and one byte more than the limit shows that the body is too large.
    body = _read_exactly(environ["wsgi.input"], limit_bytes + 1 if expected is None else expected)
    check_length(len(body), expected, limit_bytes)
    return body


def declared_length(text: str, limit_bytes: int) -> int | None:
    """Return what Content-Length says, None for "". Raises BodyIncomplete or BodyTooLarge."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BodyIncomplete("Content-Length is no number")
    length = int(text)
    if length > limit_bytes:
        raise BodyTooLarge(f"over {limit_bytes} bytes")
    return length


def check_length(length: int, expected: int | None, limit_bytes: int) -> None:
    """Raise BodyIncomplete or BodyTooLarge unless a body that has ended has the length it should have."""
    if expected is not None and length < expected:
        raise BodyIncomplete(f"{length} of {expected} bytes came")
    if length > limit_bytes:
        raise BodyTooLarge(f"over {limit_bytes} bytes")


def close_connection(environ: Mapping[str, Any]) -> None:
    """Make the server close the connection: unread body bytes must not be parsed as the next request.

    gunicorn closes by itself only after reading raised, and ignores a Connection header from an app.
    """
    with suppress(AttributeError):  # another server's stream, or a test client's
        environ["wsgi.input"].failed = True


def drain(environ: Mapping[str, Any]) -> None:
    """Read the rest of a rejected body up to a limit, so that its sender reads the response.

    A sender that is still writing would see a reset instead. Beyond the limit the connection is closed.
    """
    declared = environ.get("CONTENT_LENGTH") or ""
    whole = int(declared) if declared.isascii() and declared.isdigit() else None
    wanted = DRAIN_BYTES if whole is None else min(whole, DRAIN_BYTES)
    try:
        read = len(_read_exactly(environ["wsgi.input"], wanted))
    except (BodyIncomplete, MemoryError):
        read = wanted + 1
    if read != whole if whole is not None else read >= wanted:
        close_connection(environ)


def _read_exactly(stream: Any, wanted: int) -> bytes:
    pieces: list[bytes] = []
    missing = wanted
    while missing:
        try:
            piece = stream.read(missing)
        except MemoryError:  # says nothing of the body
            raise
        except Exception as error:  # noqa: BLE001 - on broken chunks each server raises its own exception
            raise BodyIncomplete(type(error).__name__) from None
        if not piece:
            break
        pieces.append(piece)
        missing -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Reading:
    """One body being read; `done` is set by the reader, `until` is on the monotonic clock."""

    __slots__ = ("connection", "done", "until")
    connection: socket.socket
    done: bool
    until: float


class BodyDeadline:
    """Ends the reading of bodies that trickle in, by closing the socket's receiving side.

    gunicorn's threads read with no timeout of their own, and a per-read timeout would be met by one
    byte a second. One thread watches all readings of a process; since all are given the same time,
    the oldest is always the next to end, and a reading costs an append.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        # A forked child has no thread, and must not end the readings of its parent: they share the sockets.
        self._readings: deque[_Reading] = deque()
        self._awake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def reading(self, connection: socket.socket) -> Iterator[None]:
        """Limit the time in which `connection` is read in the block. Raises OutOfResources."""
        reading = _Reading()
        reading.connection, reading.done = connection, False
        reading.until = time.monotonic() + self._seconds
        self._readings.append(reading)
        if not self._awake.is_set():
            self._awake.set()
        if self._thread is None or not self._thread.is_alive():
            self.start()
        try:
            yield
        finally:
            reading.done = True

    def start(self) -> None:
        """Start its thread in this process, if it does not run. Raises OutOfResources."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = start_thread(self._watch, "billhook-slow-bodies")

    def _watch(self) -> None:
        while True:
            if not self._readings:
                self._awake.clear()
                if not self._readings:  # pragma: no branch - a reading may begin right here
                    self._awake.wait()
                continue
            # Asleep until the oldest may be late: most are done by then, and none had to wake us.
            oldest = self._readings[0]
            time.sleep(max(0.0, oldest.until - time.monotonic()))
            while self._readings and (self._readings[0].done or self._readings[0] is oldest):
                reading = self._readings.popleft()
                if not reading.done:
                    with suppress(OSError):
                        # Not its own shutdown(): that of a TLS socket would go on in plain text.
                        socket.socket.shutdown(reading.connection, socket.SHUT_RD)
