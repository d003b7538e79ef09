"""What is read of a request, at both doors: its headers, and its body exactly once: completely, or fail.

The frameworks are too lenient for this: Werkzeug silently truncates a chunked body at MAX_CONTENT_LENGTH, and
a short body followed by a half-close looks complete. So the raw stream is read up to one byte more than the
limit, and the length is compared.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from billhook.errors import BodyIncomplete, BodyTooLarge
from billhook.fork import reset_in_child
from billhook.threads import start_thread

__all__ = [
    "DRAIN_BYTES",
    "BodyDeadline",
    "RequestHeaders",
    "TimeLimit",
    "close_connection",
    "declared_length",
    "drain",
    "read_body",
]

# Credentials that a proxy or a sender may add are not stored. Signatures are: they are valid for these bytes
# only, and an operator needs them to settle a dispute with the sender.
_CREDENTIAL = re.compile(r"AUTH|COOKIE|TOKEN|SECRET|PASSW|CREDENTIAL|SESSION|API_?KEY|ACCESS_?KEY|JWT")


class RequestHeaders(dict[str, str]):
    """Values by lower-case name. Header lines with the same name are joined by a comma, as WSGI servers do.

    Strict parsers then see one malformed value, instead of one of two that an attacker could choose.
    """

    __slots__ = ()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a header; case, and whether `name` has dashes or underscores, is ignored."""
        key = name.lower()
        if "_" in key and key not in self:
            key = key.replace("_", "-")  # how a WSGI server spells it, and so perhaps a configuration
        return dict.get(self, key, default)

    @classmethod
    def from_environ(cls, environ: Mapping[str, Any]) -> Self:
        """Return the headers in a WSGI environ."""
        headers = cls({_from_cgi(key): text for key, text in environ.items() if key.startswith("HTTP_")})
        if "CONTENT_TYPE" in environ:
            headers["content-type"] = environ["CONTENT_TYPE"]
        return headers

    @classmethod
    def from_asgi(cls, pairs: Iterable[tuple[bytes, bytes]]) -> Self:
        """Return the headers of an ASGI scope."""
        headers = cls()
        for raw_name, raw_value in pairs:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]},{value}" if name in headers else value
        return headers

    def stored(self) -> str:
        """Return the headers to store, as JSON, without credentials, for `billhook deliveries show`."""
        kept = {}
        for name, value in self.items():
            key = _stored_name(name)
            if key is not None:
                kept[key] = value
        return json.dumps(kept)


@lru_cache(256)
def _from_cgi(key: str) -> str:
    return key[5:].replace("_", "-").lower()


@lru_cache(256)
def _stored_name(name: str) -> str | None:
    """Return the name under which a header is stored, in CGI's spelling; None if it is not stored."""
    key = name.upper().replace("-", "_")
    # An ASGI server may pass X_Webhook_Type beside X-Webhook-Type: it must not take the real one's place.
    return None if "_" in name or key == "CONTENT_LENGTH" or _CREDENTIAL.search(key) else key


# --- body ---------------------------------------------------------------------------------------------

DRAIN_BYTES = 1024 * 1024
"""How much of a rejected body is read at most, so that its sender reads the response."""


def read_body(environ: Mapping[str, Any], limit_bytes: int) -> bytes:
    """The exact bytes of the body. Raises BodyTooLarge or BodyIncomplete, nothing else."""
    expected = declared_length(environ.get("CONTENT_LENGTH") or "", limit_bytes)
    if expected is None and not environ.get("wsgi.input_terminated"):
        return b""  # no length and no end: there is no body (RFC 9112, section 6.3)
    # Chunked: the server marks the end, and one byte more than the limit shows that the body is too large.
    body = _read_exactly(environ["wsgi.input"], limit_bytes + 1 if expected is None else expected)
    if expected is not None and len(body) < expected:
        raise BodyIncomplete(f"{len(body)} of {expected} bytes came")
    if len(body) > limit_bytes:
        raise BodyTooLarge(f"over {limit_bytes} bytes")
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


# --- a time limit on an event loop --------------------------------------------------------------------

_SWEEP_SECONDS = 0.01
_SWEEP_AT_MOST = 25
"""What is ended in one sweep. With a timer each, thousands that began together would end together as well,
and every other request would wait for that."""


class TimeLimit:
    """As `asyncio.timeout` of always the same length: `with limit.of(task)` raises TimeoutError."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = WeakKeyDictionary()

    def of(self, task: asyncio.Task[object]) -> _Limited:
        """Return the context in which this task is limited; it is the one that enters it."""
        loop = task.get_loop()
        waiting = self._of_loops.get(loop)
        if waiting is None:
            waiting = self._of_loops[loop] = _Waiting(self.seconds)
        return _Limited(waiting, task, loop)


class _Waiting:
    """The contexts of one loop, those that were entered first in front, and the timer of them all."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.due: dict[_Limited, float] = {}  # in this order, because all have the same length
        self.timer: asyncio.TimerHandle | None = None

    def sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        overdue: list[_Limited] = []
        next_due = None
        for limited, due in self.due.items():
            if due > now or len(overdue) == _SWEEP_AT_MOST:
                next_due = due
                break
            overdue.append(limited)
        for limited in overdue:
            del self.due[limited]
            limited.over = True
            limited.task.cancel()
        # One timer for all; it is gone when nothing waits, and holds nothing then.
        self.timer = (
            None if next_due is None else loop.call_at(max(next_due, now + _SWEEP_SECONDS), self.sweep, loop)
        )


@dataclass(slots=True, eq=False)
class _Limited:
    """What one task does within the limit.

    Look at `over` after each wait: until Python 3.12 `asyncio.wait_for` loses a cancellation that comes with
    its result.
    """

    waiting: _Waiting
    task: asyncio.Task[object]
    loop: asyncio.AbstractEventLoop
    over: bool = False

    def __enter__(self) -> _Limited:
        waiting = self.waiting
        waiting.due[self] = self.loop.time() + waiting.seconds
        if waiting.timer is None:
            waiting.timer = self.loop.call_later(waiting.seconds, waiting.sweep, self.loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.waiting.due.pop(self, None)
        # Another may have cancelled the task as well, and that must not be lost.
        if self.over and self.task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error
