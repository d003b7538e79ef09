"""Receive deliveries by WSGI: the view of a source, the receiver it calls, and the body, read exactly once.

The framework is too lenient with a body: Werkzeug silently truncates a chunked one at MAX_CONTENT_LENGTH, and
a short one followed by a half-close looks complete. So the raw stream is read up to one byte more than the
limit, and the length is compared.
"""

from __future__ import annotations

import errno
import io
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from flask import Response, request

from billhook.errors import (
    BodyConsumed,
    BodyIncomplete,
    BodyTooLarge,
    InboxUnavailable,
    OutOfResources,
    RequestError,
    SignatureError,
)
from billhook.inbox import Inbox
from billhook.receiver.intake import DRAIN_BYTES, DeliveryRules, RequestHeaders, declared_length
from billhook.receiver.responses import METHOD_NOT_ALLOWED, PROBE_RESPONSE, WebhookResponse
from billhook.signing.source import Source
from billhook.threads import reset_in_child, start_thread

PROBE = "billhook.probe"
"""Key of the probe in the WSGI environ. A client cannot set it: headers arrive as HTTP_… and as text."""


class DeliveryProbe:
    """Put it into the environ of a request made in this process; the receiver sets `status`.

    If `status` is still None afterwards, something else in the app answered the request.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.reason = ""
        """Why the delivery was refused, if the app is the cause."""


def find_probe(environ: Mapping[str, Any]) -> DeliveryProbe | None:
    """Return the probe of this request; None for a delivery."""
    found = environ.get(PROBE)
    return found if isinstance(found, DeliveryProbe) else None


class EveryMethod(set[str]):
    """The methods of a rule that also matches unknown methods; iterating yields the known ones."""

    def __contains__(self, method: object) -> bool:
        return True


_COUNTED = "billhook.counted"
"""Key in the environment of the stream that counts, also where a hook has replaced `wsgi.input`."""


class CountedStream(io.RawIOBase):
    """The stream of a request's body, which counts what hooks of the app read from it."""

    server_stream: Any
    bytes_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.server_stream.read(len(buffer))
        buffer[: len(piece)] = piece
        self.bytes_read += len(piece)
        return len(piece)


def count_body_bytes(endpoint: str | None, values: dict[str, Any] | None) -> None:
    """Count what is read from the body of the current request. Flask calls this before the app's hooks."""
    counted = CountedStream()
    counted.server_stream = request.environ["wsgi.input"]
    request.environ["wsgi.input"] = request.environ[_COUNTED] = counted


def make_view(receiver: WsgiReceiver, source: Source) -> Callable[[], Response]:
    """Return the view that receives the deliveries of a source."""

    def receive() -> Response:
        try:
            return answer()
        except MemoryError:  # handled here, because the frames that held the body are released
            return _response(receiver.intake.out_of_memory(source))

    def answer() -> Response:
        environ, cached_body, consumed = request.environ, request.__dict__.get("_cached_data"), False
        # A hook that has read the body may have replaced the stream, so that the body can be read again.
        counted = environ.get(_COUNTED)
        replaced = counted is not environ["wsgi.input"]
        if counted is not None and not replaced:
            environ["wsgi.input"] = counted.server_stream
            consumed = counted.bytes_read != len(cached_body or b"")
        if request.method != "POST":
            response = _response(METHOD_NOT_ALLOWED)
        else:
            original = counted if replaced and cached_body is None else None
            response = _response(
                receiver.accept(environ, source, cached_body, consumed=consumed, original=original)
            )
        if consumed or response.status_code in (405, 413):  # refused before the body was read
            response.call_on_close(partial(receiver.drain, environ))
        if PROBE in request.environ and (probe := find_probe(request.environ)) is not None:
            probe.status = response.status_code
        return response

    return receive


def _response(answer: WebhookResponse) -> Response:
    response = Response(answer.body, answer.status, content_type="application/json")
    response.headers.extend(answer.headers)
    return response


class WsgiReceiver:
    """Receive deliveries in the thread of each request."""

    def __init__(self, intake: DeliveryRules, inbox: Inbox) -> None:
        self.intake = intake
        self._inbox = inbox
        self._body_deadline = BodyDeadline(intake.body_seconds)

    def accept(
        self,
        environ: Mapping[str, Any],
        source: Source,
        cached_body: bytes | None = None,
        *,
        consumed: bool = False,
        original: CountedStream | None = None,
    ) -> WebhookResponse:
        """Accept one POST.

        `cached_body` is the copy of the body that a hook of the app has read. With `consumed`, hooks have
        read more than this copy. `original` is the stream that a hook has put another one in place of.
        """
        deadline = time.monotonic() + self.intake.deadline_seconds
        connection = None
        if cached_body is None:
            connection = environ.get("gunicorn.socket") or environ.get("werkzeug.socket")
        try:
            if consumed:
                raise BodyConsumed
            # Read before any check: unread body bytes would be parsed as the connection's next request.
            with nullcontext() if connection is None else self._body_deadline.reading(connection):
                body = read_body(environ, self.intake.max_body_bytes, cached_body, original)
            delivery = self.intake.verify(source, RequestHeaders.from_environ(environ), body)
            if PROBE in environ and find_probe(environ) is not None:
                return PROBE_RESPONSE
            receipt = self._inbox.put(delivery, deadline - time.monotonic())
        except (RequestError, SignatureError, InboxUnavailable) as error:
            if isinstance(error, BodyConsumed | BodyIncomplete):
                close_connection(environ)
            if isinstance(error, BodyConsumed) and (probe := find_probe(environ)) is not None:
                probe.reason = str(error)
            return self.intake.rejected(source, error)
        return self.intake.stored(delivery, receipt)

    def start(self) -> None:
        """Start the threads that `accept` needs, rather than at its first call. Raises OutOfResources."""
        self._body_deadline.start()
        self._inbox.start()

    def drain(self, environ: Mapping[str, Any]) -> None:
        """Read the rest of a body that was rejected unread; call it after the response is sent."""
        connection = environ.get("gunicorn.socket")
        if connection is None:  # another server's own rules hold for its unread bodies
            return
        try:
            with self._body_deadline.reading(connection):
                drain(environ)
        except OutOfResources:
            close_connection(environ)


# --- body ---------------------------------------------------------------------------------------------


def read_body(
    environ: Mapping[str, Any],
    limit_bytes: int,
    cached: bytes | None = None,
    original: CountedStream | None = None,
) -> bytes:
    """Read the exact bytes of the body. Raises BodyTooLarge, BodyIncomplete or BodyConsumed, nothing else.

    What a hook has read is taken from its copy, `cached`: Werkzeug's own server never ends a stream that was
    read to its end, so reading it again would hang. A stream that a hook has put in place of the `original`
    must have as many bytes as were read of that.
    """
    expected = declared_length(environ.get("CONTENT_LENGTH") or "", limit_bytes)
    if expected is None and not environ.get("wsgi.input_terminated"):
        return b""  # no length and no end: there is no body (RFC 9112, section 6.3)
    stream = environ["wsgi.input"] if cached is None else io.BytesIO(cached)
    # Chunked: the server marks the end, and one byte more than the limit shows that the body is too large.
    body = _read_exactly(stream, limit_bytes + 1 if expected is None else expected)
    if len(body) > limit_bytes:
        raise BodyTooLarge(f"over {limit_bytes} bytes")
    if original is not None:
        # A body with a length must not be read beyond it: Werkzeug's own server would wait for more.
        is_short = bool(original.server_stream.read(1)) if expected is None else len(body) < expected
        if is_short or original.bytes_read != len(body):
            raise BodyConsumed
    if expected is not None and len(body) < expected:
        raise BodyIncomplete(f"{len(body)} of {expected} bytes came")
    return body


def close_connection(environ: Mapping[str, Any]) -> None:
    """Make the server close the connection: unread body bytes must not be parsed as the next request.

    gunicorn closes by itself only after reading raised, and ignores a Connection header from an app.
    """
    stream = environ["wsgi.input"]
    with suppress(AttributeError):  # another server's stream, or a test client's
        if hasattr(stream, "failed"):
            stream.failed = True
        else:  # gunicorn before 27 reads the rest of a body first, and closes if that fails
            stream.read = _raise_closed


def _raise_closed(size: int | None = None) -> bytes:
    # Of a closed connection gunicorn says nothing; others it logs with a stack trace.
    raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))


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
        except MemoryError:  # no fault of the body
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
    """Ends the reading of slow bodies by closing the receiving side of the socket.

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
            # Sleep until the oldest reading may be late: most readings are done by then, without waking this
            # thread.
            oldest = self._readings[0]
            time.sleep(max(0.0, oldest.until - time.monotonic()))
            while self._readings and (self._readings[0].done or self._readings[0] is oldest):
                reading = self._readings.popleft()
                if not reading.done:
                    with suppress(OSError):
                        # Not connection.shutdown(): a TLS socket would continue in plain text after its own.
                        socket.socket.shutdown(reading.connection, socket.SHUT_RD)
