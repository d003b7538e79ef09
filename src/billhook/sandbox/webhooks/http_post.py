"""One POST over HTTP/1.1 to a checked address, under one deadline that a receiver cannot stretch."""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any

from billhook.sandbox.webhooks.addresses import (
    CallbackTarget,
    CheckedAddress,
    Found,
    Lookup,
    parse_callback_url,
    resolve,
)
from billhook.sandbox.webhooks.outcomes import FailureReason, PostResult

SEND_BYTES = 65_536


class SocketDeadline:
    """A moment by which an exchange must be finished."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left; TimeoutError if there are none."""
        seconds = self._ends - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    def within(self, seconds: float) -> SocketDeadline:
        """Return the earlier of this deadline and one in `seconds`."""
        return SocketDeadline(min(self._ends - time.monotonic(), seconds))


class TimedSocket(io.RawIOBase):
    """A socket for http.client whose reads and writes all end at one deadline.

    A socket's own timeout starts anew with each call: a receiver that sends a byte now and then would
    never time out.
    """

    def __init__(self, connection: socket.socket, deadline: SocketDeadline) -> None:
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
        """Do nothing: http.client closes too early, and the code that opened the socket closes it."""


class OpenConnection(http.client.HTTPConnection):
    """An HTTP connection over an open socket, so that the name is not resolved again."""

    def __init__(self, host: str, port: int, timed: TimedSocket) -> None:
        super().__init__(host, port)
        self._timed = timed

    def connect(self) -> None:
        self.sock = self._timed


MAX_ANSWER_BYTES = 1024
MAX_ANSWER_SECONDS = 1.0
"""How much of a response's body is read, and for how long; only the status decides about success."""

_TEXT = re.compile(r"text/.*|application/(.*[+/])?(json|xml)")


class WebhookPoster:
    """Sends POST requests; safe to use from many threads. It uses no proxy and follows no redirect."""

    def __init__(
        self, timeout_seconds: float, *, allow_private: bool, lookup: Lookup = socket.getaddrinfo
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._allow_private = allow_private
        self._lookup = lookup
        self._in_progress: set[Callable[[], object]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        """Send `body` and return the result. Raises no exception that a receiver can cause."""
        try:
            target = parse_callback_url(url, allow_private=self._allow_private)
        except ValueError:
            return PostResult(problem=FailureReason.UNFIT_URL)
        try:
            deadline = SocketDeadline(self._timeout_seconds)
            with self._connected(target, deadline) as connection:
                return _exchange(connection, target, headers, body, deadline)
        except (
            OSError,
            http.client.HTTPException,
        ) as error:  # reported by type: the text may quote the receiver
            return PostResult(problem=_problem(error))

    def close(self) -> None:
        """Abort requests in progress and refuse new ones."""
        with self._lock:
            self._closed = True
            for abort in self._in_progress:
                with suppress(OSError):
                    abort()

    @contextmanager
    def _connected(self, target: CallbackTarget, deadline: SocketDeadline) -> Iterator[socket.socket]:
        for address in self._resolved(target, deadline):
            try:
                raw = socket.socket(address.family, socket.SOCK_STREAM)
            except OSError:  # an address family that this machine does not have
                continue
            with raw, self._abortable(partial(raw.shutdown, socket.SHUT_RDWR)):
                try:
                    raw.settimeout(deadline.left())
                    raw.connect(address.sockaddr)
                    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                except TimeoutError:
                    raise
                except OSError:
                    continue
                if target.scheme == "http":
                    yield raw
                else:
                    with self._secured(raw, target.host, deadline) as secured:
                        yield secured
                return
        raise ConnectionRefusedError

    def _resolved(self, target: CallbackTarget, deadline: SocketDeadline) -> list[CheckedAddress]:
        answer: Future[Found] = Future()
        with self._abortable(answer.cancel):
            return resolve(
                target, allow_private=self._allow_private, timeout_seconds=deadline.left(),
                lookup=self._lookup, answer=answer,
            )  # fmt: skip

    def _secured(self, raw: socket.socket, host: str, deadline: SocketDeadline) -> ssl.SSLSocket:
        plain = raw.dup()  # close() shuts down `raw`, which must stay open meanwhile
        secured = None
        try:
            plain.settimeout(deadline.left())
            secured = self._tls.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
            secured.do_handshake()
        except BaseException as error:
            (secured or plain).close()
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise ssl.SSLError from None
            raise
        return secured

    @contextmanager
    def _abortable(self, abort: Callable[[], object]) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise ConnectionRefusedError
            self._in_progress.add(abort)
        try:
            yield
        finally:
            with self._lock:
                self._in_progress.discard(abort)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


def _exchange(
    connection: socket.socket,
    target: CallbackTarget,
    headers: Mapping[str, str],
    body: bytes,
    deadline: SocketDeadline,
) -> PostResult:
    timed = TimedSocket(connection, deadline)
    http_connection = OpenConnection(target.host, target.port, timed)
    # A receiver may respond without reading the whole request.
    with suppress(BrokenPipeError, ConnectionResetError):
        http_connection.request("POST", target.path, body, {"Host": target.netloc, **headers})
    with http_connection.getresponse() as response:
        problem: FailureReason | None = None
        if 300 <= response.status < 400:
            problem = FailureReason.REDIRECTED
        elif not 200 <= response.status < 300:
            problem = FailureReason.BAD_STATUS
        timed.deadline = deadline.within(MAX_ANSWER_SECONDS)
        return PostResult(response.status, problem, _beginning(response))


def _beginning(response: http.client.HTTPResponse) -> bytes | None:
    """Return the first bytes of a text body, as far as they arrive in time; None for other types."""
    kind = response.headers.get_content_type()
    if not _TEXT.fullmatch(kind) or response.headers.get("Content-Encoding", "identity") != "identity":
        return None
    found = b""
    with suppress(OSError, http.client.HTTPException, ValueError):
        while len(found) < MAX_ANSWER_BYTES and (more := response.read1(MAX_ANSWER_BYTES - len(found))):
            found += more
    return found


_PROBLEMS: list[tuple[type[Exception], FailureReason]] = [
    (TimeoutError, FailureReason.TIMED_OUT),
    (socket.gaierror, FailureReason.UNKNOWN_NAME),
    (PermissionError, FailureReason.FORBIDDEN_ADDRESS),
    (ConnectionRefusedError, FailureReason.NOT_CONNECTED),
    (ssl.SSLError, FailureReason.TLS_FAILED),
    (ConnectionError, FailureReason.BROKEN_OFF),
    (http.client.IncompleteRead, FailureReason.BROKEN_OFF),
    (http.client.HTTPException, FailureReason.UNREADABLE_ANSWER),
]
"""The first match counts."""


def _problem(error: Exception) -> FailureReason:
    fitting = (problem for kind, problem in _PROBLEMS if isinstance(error, kind))
    return next(fitting, FailureReason.BROKEN_OFF)
