"""Sign deliveries and post them, as the service does: to a URL, or to a Flask app in this process."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from billhook.basics.concurrency import start_thread
from billhook.signing.source import TYPE_HEADER

if TYPE_CHECKING:
    from flask import Flask
    from werkzeug.test import TestResponse

    from billhook.signing import Scheme

_MOST_CHARACTERS = 4_096
"""How much of an answer is read."""
_HEADERS = {"Content-Type": "application/json", "User-Agent": "billhook"}


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Hold the answer to a POST. `status` is None if none was received; `body` is then the reason."""

    status: int | None
    body: str
    seconds: float


def sign(
    scheme: Scheme,
    secret: str,
    event_type: str,
    body: bytes,
    now: datetime,
    message_id: str | None = None,
    *,
    type_header: str | None = None,
) -> dict[str, str]:
    """Return the headers of a delivery. Raises ValueError for what the scheme cannot sign."""
    kind = {type_header or TYPE_HEADER: event_type} if event_type else {}
    return kind | dict(scheme.sign(body, secret, event_type=event_type, now=now, message_id=message_id))


# http.client and not httpx: `send` and `demo` work without the extra `client`.
class HttpPoster:
    """Post to one URL over a connection that it keeps alive: no redirects, no proxies. A context manager."""

    def __init__(self, url: SplitResult, timeout_seconds: float) -> None:
        """`timeout_seconds` is for a whole post, from the lookup of the name to the end of the answer."""
        self._parts = url
        self._timeout_seconds = timeout_seconds
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> HttpPoster:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def post(self, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """Post a delivery. A network failure does not raise: it is a result without a status."""
        started = time.monotonic()
        status, text = self._post(started + self._timeout_seconds, body, headers)
        return HttpReply(status, text, time.monotonic() - started)

    def _post(self, end_at: float, body: bytes, headers: Mapping[str, str]) -> tuple[int | None, str]:
        reused = self._connection is not None
        try:
            return self._exchange_in_time(end_at, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self._close()
            # The server may close an idle connection just as this request is sent: that is no answer yet. If
            # the first request did arrive after all, the second is a duplicate, which receivers recognise.
            if reused and isinstance(error, ConnectionError | http.client.RemoteDisconnected):
                return self._post(end_at, body, headers)
            return None, _reason(error)

    def _exchange_in_time(self, end_at: float, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Exchange in a thread that is left at the deadline. Raises TimeoutError then, and what it raises.

        The limit of a socket is for each read alone, and the lookup of a name has none.
        """
        if self._connection is None:
            secure = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._connection = kind(
                self._parts.hostname or "", self._parts.port, timeout=self._timeout_seconds
            )
        connection = self._connection
        done: SimpleQueue[tuple[int, str] | Exception] = SimpleQueue()

        def exchange() -> None:
            try:
                done.put(self._exchange(connection, body, headers))
            except Exception as error:  # noqa: BLE001 - raised by the caller
                done.put(error)

        start_thread(exchange, "billhook-post")
        try:
            found = done.get(timeout=max(0.0, end_at - time.monotonic()))
        except Empty:
            raise TimeoutError from None
        if isinstance(found, Exception):
            raise found
        return found

    def _exchange(
        self, connection: http.client.HTTPConnection, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, str]:
        if connection.sock is None:
            connection.connect()
        if connection is not self._connection:  # the deadline has passed: nothing is to be sent any more
            connection.close()
            raise TimeoutError
        target = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        connection.request("POST", target, body, {**_HEADERS, **headers})
        response = connection.getresponse()
        text = response.read(_MOST_CHARACTERS).decode("utf-8", "replace")
        # A longer answer was not read to its end, and its rest would be taken for the next answer.
        if (not response.isclosed() or response.will_close) and connection is self._connection:
            self._close()
        return response.status, text

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if connection.sock is not None:
                with suppress(OSError):  # it ends a read that another thread waits in
                    connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@dataclass(frozen=True, slots=True)
class AppPoster:
    """Post to a path of a Flask app in this process, without a server; as over TLS, which an app may want."""

    app: Flask
    path: str
    host: str = "localhost"
    """What requests name as their host."""

    def send(self, body: bytes, headers: Mapping[str, str]) -> TestResponse:
        """Post a delivery. What the app raises is raised here."""
        return self.app.test_client().post(
            self.path,
            data=body,
            headers={**_HEADERS, **headers},
            url_scheme="https",
            environ_overrides={"HTTP_HOST": self.host},
        )

    def post(self, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """Post a delivery. A failure of the app does not raise: it is a result without a status."""
        started = time.monotonic()
        try:
            response = self.send(body, headers)
        except Exception as error:  # noqa: BLE001 - the app's own code, which may raise anything
            return HttpReply(None, f"no answer: the app raised {type(error).__name__}: {error}", 0.0)
        with response:
            text = response.get_data(as_text=True)[:_MOST_CHARACTERS]
            return HttpReply(response.status_code, text, time.monotonic() - started)
