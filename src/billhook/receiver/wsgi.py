"""WsgiReceiver: take one delivery from a WSGI environ to its response: read, verify, store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from billhook.errors import (
    BodyIncomplete,
    BodyTooLarge,
    InboxUnavailable,
    OutOfResources,
    RequestError,
    SignatureError,
)
from billhook.inbox import Inbox
from billhook.receiver.body import BodyDeadline, close_connection, drain, read_body
from billhook.receiver.headers import RequestHeaders
from billhook.receiver.intake import Intake
from billhook.receiver.probe import PROBE, find_probe
from billhook.receiver.responses import PROBE_RESPONSE, WebhookResponse
from billhook.signing.source import Source

__all__ = ["WsgiReceiver"]


class WsgiReceiver:
    """Receive deliveries in the thread of each request."""

    def __init__(self, intake: Intake, inbox: Inbox) -> None:
        self.intake = intake
        self._inbox = inbox
        self._body_deadline = BodyDeadline(intake.body_seconds)
        self.response_sent = inbox.response_sent

    def accept(
        self, environ: Mapping[str, Any], source: Source, cached_body: Callable[[], bytes] = bytes
    ) -> WebhookResponse:
        """Accept one POST. `cached_body` returns the body if a hook of the app has consumed it already."""
        deadline = time.monotonic() + self.intake.deadline_seconds
        try:
            # Read before any check: unread body bytes would be parsed as the connection's next request.
            body = self._read_body(environ, cached_body)
            delivery = self.intake.verify(source, RequestHeaders.from_environ(environ), body)
            if PROBE in environ and find_probe(environ) is not None:
                return PROBE_RESPONSE
            receipt = self._inbox.put(delivery, deadline - time.monotonic())
        except (RequestError, SignatureError, InboxUnavailable) as error:
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

    def _read_body(self, environ: Mapping[str, Any], cached_body: Callable[[], bytes]) -> bytes:
        connection = environ.get("gunicorn.socket")
        with nullcontext() if connection is None else self._body_deadline.reading(connection):
            try:
                body = read_body(environ, self.intake.max_body_bytes) or cached_body()
            except BodyIncomplete:
                body = cached_body()  # no longer than Content-Length, which is within the limit
                if str(len(body)) != environ.get("CONTENT_LENGTH", "").lstrip("0"):
                    close_connection(environ)
                    raise
        if len(body) > self.intake.max_body_bytes:  # chunked, and read by something in the app
            raise BodyTooLarge
        return body
