"""One POST over HTTP/1.1, to an address that was checked, within a time that no receiver can stretch."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cached_property, partial

from billhook.sandbox.sending.addresses import Address, Found, Lookup, Target, resolve, target_of
from billhook.sandbox.sending.outcome import Outcome, Problem
from billhook.sandbox.sending.timed_socket import Deadline, Dialled, TimedSocket

__all__ = ["Poster"]

MAX_ANSWER_BYTES = 1024
MAX_ANSWER_SECONDS = 1.0
"""How much of an answer's body is read, and how long that may take: its status tells all that counts."""

_TEXT = re.compile(r"text/.*|application/(.*[+/])?(json|xml)")


class Poster:
    """Posts from any number of threads. It uses no proxy and follows no redirect."""

    def __init__(
        self, timeout_seconds: float, *, allow_private: bool, lookup: Lookup = socket.getaddrinfo
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._allow_private = allow_private
        self._lookup = lookup
        self._under_way: set[Callable[[], object]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Outcome:
        """Send `body`; what became of it. Raises nothing that a receiver could bring about."""
        try:
            target = target_of(url, allow_private=self._allow_private)
        except ValueError:
            return Outcome(problem=Problem.UNFIT_URL)
        try:
            deadline = Deadline(self._timeout_seconds)
            with self._connected(target, deadline) as connection:
                return _exchange(connection, target, headers, body, deadline)
        except (OSError, http.client.HTTPException) as error:  # by its type: the text may hold anything
            return Outcome(problem=_problem(error))

    def close(self) -> None:
        """Break off whatever is being sent; connect to nobody any more."""
        with self._lock:
            self._closed = True
            for break_off in self._under_way:
                with suppress(OSError):
                    break_off()

    @contextmanager
    def _connected(self, target: Target, deadline: Deadline) -> Iterator[socket.socket]:
        for address in self._resolved(target, deadline):
            try:
                raw = socket.socket(address.family, socket.SOCK_STREAM)
            except OSError:  # a kind of network that this machine does not have
                continue
            with raw, self._remembered(partial(raw.shutdown, socket.SHUT_RDWR)):
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

    def _resolved(self, target: Target, deadline: Deadline) -> list[Address]:
        answer: Future[Found] = Future()
        with self._remembered(answer.cancel):
            return resolve(
                target, allow_private=self._allow_private, timeout_seconds=deadline.left(),
                lookup=self._lookup, answer=answer,
            )  # fmt: skip

    def _secured(self, raw: socket.socket, host: str, deadline: Deadline) -> ssl.SSLSocket:
        plain = raw.dup()  # `raw` stays as it is, to be broken off by
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
    def _remembered(self, break_off: Callable[[], object]) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise ConnectionRefusedError
            self._under_way.add(break_off)
        try:
            yield
        finally:
            with self._lock:
                self._under_way.discard(break_off)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


def _exchange(
    connection: socket.socket, target: Target, headers: Mapping[str, str], body: bytes, deadline: Deadline
) -> Outcome:
    timed = TimedSocket(connection, deadline)
    http_connection = Dialled(target.host, target.port, timed)
    # Who does not read the whole request may have answered all the same.
    with suppress(BrokenPipeError, ConnectionResetError):
        http_connection.request("POST", target.path, body, {"Host": target.netloc, **headers})
    with http_connection.getresponse() as response:
        problem: Problem | None = None
        if 300 <= response.status < 400:
            problem = Problem.REDIRECTED
        elif not 200 <= response.status < 300:
            problem = Problem.BAD_STATUS
        timed.deadline = deadline.within(MAX_ANSWER_SECONDS)
        return Outcome(response.status, problem, _beginning(response))


def _beginning(response: http.client.HTTPResponse) -> bytes | None:
    """The first bytes of a text, as far as they come; the status has told the rest."""
    kind = response.headers.get_content_type()
    if not _TEXT.fullmatch(kind) or response.headers.get("Content-Encoding", "identity") != "identity":
        return None
    found = b""
    with suppress(OSError, http.client.HTTPException, ValueError):
        while len(found) < MAX_ANSWER_BYTES and (more := response.read1(MAX_ANSWER_BYTES - len(found))):
            found += more
    return found


_PROBLEMS: list[tuple[type[Exception], Problem]] = [
    (TimeoutError, Problem.TIMED_OUT),
    (socket.gaierror, Problem.UNKNOWN_NAME),
    (PermissionError, Problem.FORBIDDEN_ADDRESS),
    (ConnectionRefusedError, Problem.NOT_CONNECTED),
    (ssl.SSLError, Problem.TLS_FAILED),
    (ConnectionError, Problem.BROKEN_OFF),
    (http.client.IncompleteRead, Problem.BROKEN_OFF),
    (http.client.HTTPException, Problem.UNREADABLE_ANSWER),
]
"""The first that fits."""


def _problem(error: Exception) -> Problem:
    fitting = (problem for kind, problem in _PROBLEMS if isinstance(error, kind))
    return next(fitting, Problem.BROKEN_OFF)
