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
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from flask import Request, Response, request

from billhook.basics.concurrency import reset_in_child, start_thread
from billhook.errors import (
    BodyIncomplete,
    BodyTooLarge,
    InboxUnavailable,
    OutOfResources,
    RequestError,
    SignatureError,
)
from billhook.inbox import Inbox
from billhook.receiver.delivery_rules import DRAIN_BYTES, DeliveryRules, RequestHeaders, declared_length
from billhook.receiver.responses import METHOD_NOT_ALLOWED, PROBE_RESPONSE, WebhookResponse
from billhook.signing.source import Source

PROBE = "billhook.probe"
"""Key of the probe in the WSGI environ. A client cannot set it: headers arrive as HTTP_… and as text."""


class DeliveryProbe:
    """Put it into the environ of a request of this process's own; the receiver sets `answer`.

    If that is still None afterwards, something else in the app answered the request.
    """

    answer: WebhookResponse | None = None


def find_probe(environ: Mapping[str, Any]) -> DeliveryProbe | None:
    """Return the probe of this request; None for a delivery."""
    found = environ.get(PROBE)
    return found if isinstance(found, DeliveryProbe) else None


class EveryMethod(set[str]):
    """The methods of a rule that also matches unknown methods; iterating yields the known ones."""

    def __contains__(self, method: object) -> bool:
        return True


class TakenBody(NamedTuple):
    """The body of a request as it was read before the hooks of the app, or why it is refused."""

    body: bytes
    """Empty if it is refused."""
    refusal: RequestError | InboxUnavailable | MemoryError | None
    server_stream: Any
    """It may have more of a body that is refused."""
    seconds: float
    """How long reading took."""


TAKEN = "billhook.body"
"""Key of the TakenBody in the WSGI environ."""


def restore_body(here: Request, body: bytes) -> None:
    """Have the app's code find the body as it came, however it reads it, and at its end no more than that."""
    here._cached_data = body
    here.__dict__.pop("stream", None)
    here.environ["wsgi.input"] = io.BytesIO(body)
    here.environ["wsgi.input_terminated"] = True


def make_view(receiver: WsgiReceiver, source: Source) -> Callable[[], Response]:
    """Return the view that receives the deliveries of a source."""

    def receive() -> Response:
        here: Request = request._get_current_object()  # type: ignore[attr-defined]
        environ = here.environ
        if TAKEN not in environ:  # of another route of the app, which was given this view
            receiver.take_body(None, None)
        taken: TakenBody = environ.pop(TAKEN)
        try:
            answer = METHOD_NOT_ALLOWED
            if here.method == "POST":
                answer = receiver.accept(environ, source, taken)
        except MemoryError:  # handled here, because the frames that held the body are released
            answer = receiver.rules.out_of_memory(source)
        restore_body(here, taken.body)
        response = Response(answer.body, answer.status, content_type="application/json")
        response.headers.extend(answer.headers)
        if answer.status in (405, 413):  # refused before the body was read
            response.call_on_close(partial(receiver.drain, environ, taken.server_stream))
        if PROBE in environ and (probe := find_probe(environ)) is not None:
            probe.answer = answer
        return response

    return receive


class WsgiReceiver:
    """Receive deliveries in the thread of each request."""

    def __init__(self, rules: DeliveryRules, inbox: Inbox) -> None:
        self.rules = rules
        self._inbox = inbox
        self._body_deadline = BodyDeadline(rules.body_seconds)

    def take_body(self, endpoint: str | None, values: dict[str, Any] | None) -> None:
        """Read the body of the current request, if it is a POST. Flask calls this before the app's hooks."""
        here: Request = request._get_current_object()  # type: ignore[attr-defined]
        environ, cached_body = here.environ, here.__dict__.get("_cached_data")
        stream, started = environ["wsgi.input"], time.monotonic()
        connection = None
        if cached_body is None:
            connection = environ.get("gunicorn.socket") or environ.get("werkzeug.socket")
        body, refusal = b"", None
        try:
            if here.method == "POST":
                # Read before any check: unread body bytes would be parsed as the connection's next request.
                with nullcontext() if connection is None else self._body_deadline.reading(connection):
                    body = read_body(environ, self.rules.max_body_bytes, cached_body)
        except (RequestError, InboxUnavailable, MemoryError) as error:
            refusal = error.with_traceback(None)  # whose frames hold what was read
            if isinstance(error, BodyIncomplete):
                close_connection(stream)
        environ[TAKEN] = TakenBody(body, refusal, stream, time.monotonic() - started)
        # Not the property: a request class of the app may have one that cannot be set.
        here._max_content_length = sys.maxsize  # else MAX_CONTENT_LENGTH would fail what reads the body
        restore_body(here, body)

    def accept(self, environ: Mapping[str, Any], source: Source, taken: TakenBody) -> WebhookResponse:
        """Accept one POST, whose body has been read."""
        deadline = time.monotonic() + self.rules.deadline_seconds - taken.seconds
        try:
            if taken.refusal is not None:
                raise taken.refusal
            delivery = self.rules.verify(source, RequestHeaders.from_environ(environ), taken.body)
            if PROBE in environ and find_probe(environ) is not None:
                return PROBE_RESPONSE
            try:
                receipt = self._inbox.put(delivery, deadline - time.monotonic())
            except (OutOfResources, MemoryError) as error:
                raise self.rules.not_stored(error) from None
        except (RequestError, SignatureError, InboxUnavailable) as error:
            return self.rules.rejected(source, error)
        return self.rules.stored(delivery, receipt)

    def start(self) -> None:
        """Start the threads that `accept` needs, rather than at its first call. Raises OutOfResources."""
        self._body_deadline.start()
        self._inbox.start()

    def drain(self, environ: Mapping[str, Any], stream: Any) -> None:
        """Read the rest of a rejected body from its server's stream; call it after the response is sent."""
        connection = environ.get("gunicorn.socket")
        if connection is None:  # another server's own rules hold for its unread bodies
            return
        try:
            with self._body_deadline.reading(connection):
                drain(environ.get("CONTENT_LENGTH") or "", stream)
        except OutOfResources:
            close_connection(stream)


def read_body(environ: Mapping[str, Any], limit_bytes: int, cached: bytes | None = None) -> bytes:
    """Read the exact bytes of the body. Raises BodyTooLarge or BodyIncomplete, nothing else.

    What code of the app has read before is taken from its copy, `cached`: Werkzeug's own server never ends a
    stream that was read to its end, so reading it again would hang.
    """
    expected = declared_length(environ.get("CONTENT_LENGTH") or "", limit_bytes)
    if expected is None and not environ.get("wsgi.input_terminated"):
        return b""  # no length and no end: there is no body (RFC 9112, section 6.3)
    stream = environ["wsgi.input"] if cached is None else io.BytesIO(cached)
    # Chunked: the server marks the end, and one byte more than the limit shows that the body is too large.
    body = _read_exactly(stream, limit_bytes + 1 if expected is None else expected)
    if len(body) > limit_bytes:
        raise BodyTooLarge(f"over {limit_bytes} bytes")
    if expected is not None and len(body) < expected:
        raise BodyIncomplete(f"{len(body)} of {expected} bytes came")
    return body


def close_connection(stream: Any) -> None:
    """Make the server whose stream it is close the connection: the rest must not be parsed as a request.

    gunicorn closes by itself only after reading raised, and ignores a Connection header from an app.
    """
    with suppress(AttributeError):  # another server's stream, or a test client's
        if hasattr(stream, "failed"):
            stream.failed = True
        else:  # gunicorn before 27 reads the rest of a body first, and closes if that fails
            stream.read = _raise_closed


def _raise_closed(size: int | None = None) -> bytes:
    # Of a closed connection gunicorn says nothing; others it logs with a stack trace.
    raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))


def drain(declared: str, stream: Any) -> None:
    """Read the rest of a rejected body up to a limit, so that its sender reads the response.

    A sender that is still writing would see a reset instead. Beyond the limit the connection is closed.
    `declared` is its Content-Length.
    """
    whole = int(declared) if declared.isascii() and declared.isdigit() else None
    wanted = DRAIN_BYTES if whole is None else min(whole, DRAIN_BYTES)
    try:
        read = len(_read_exactly(stream, wanted))
        ended = read < wanted if whole is None else read == whole
    except (BodyIncomplete, MemoryError):
        ended = False
    if not ended:
        close_connection(stream)


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
    return b"".join(pieces)  # the same object, if it came in one piece


@dataclass(slots=True, eq=False)
class _Reading:
    """One body being read in its block; `until` is on the monotonic clock."""

    connection: socket.socket
    until: float
    done: bool = False

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.done = True


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

    def reading(self, connection: socket.socket) -> _Reading:
        """Limit the time in which `connection` is read in the block of the result. Raises OutOfResources."""
        if self._thread is None or not self._thread.is_alive():
            self.start()
        reading = _Reading(connection, time.monotonic() + self._seconds)
        self._readings.append(reading)
        if not self._awake.is_set():
            self._awake.set()
        return reading

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
