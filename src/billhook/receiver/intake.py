"""Intake: take one delivery from request to response, without Flask: read, verify, store.

The body is not parsed here: a verified delivery is stored first and parsed later, and an unverified one is
never parsed. The same holds for the type: a verified delivery without a type is stored, and an unverified one
is rejected as unverified, no matter what its type header says.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Container, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from billhook.clock import Clock
from billhook.errors import (
    BodyIncomplete,
    BodyTooLarge,
    InboxUnavailable,
    OutOfResources,
    RequestError,
    SignatureError,
    UnsupportedEncoding,
)
from billhook.inbox import Inbox, NewDelivery, PutStatus, Receipt
from billhook.printable import printable
from billhook.receiver.body import BodyDeadline, close_connection, drain, read_body
from billhook.receiver.probe import PROBE, find_probe
from billhook.receiver.rejection_log import RejectionLog
from billhook.receiver.responses import PROBE_RESPONSE, WebhookResponse, error_response, success_response
from billhook.signals import (
    delivery_accepted,
    delivery_conflict,
    delivery_duplicate,
    delivery_quarantined,
    delivery_rejected,
    emit,
)
from billhook.signing.source import Source

__all__ = ["Intake"]

logger = logging.getLogger("billhook.receiver")

# The type header is one ASCII name. Two header lines arrive joined by a comma, so they fail.
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
# Credentials that a proxy or a sender may add are not stored. Signatures are: they are valid for these bytes
# only, and an operator needs them to settle a dispute with the sender.
_CREDENTIAL = re.compile(r"AUTH|COOKIE|TOKEN|SECRET|PASSW|CREDENTIAL|SESSION|API_?KEY|ACCESS_?KEY|JWT")


class Intake:
    """Accept deliveries of all sources of one app. `sender`, the Flask app, is the sender of its signals."""

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        *,
        sender: object,
        wake: Callable[[int], None],
        max_body_bytes: int,
        deadline_seconds: float,
        known_types: Container[str],
    ) -> None:
        """`wake` is called with the id of each accepted delivery; the response does not depend on it.

        `known_types` are the event types with a model. For a known key, at most one delivery of all other
        types together is stored as a conflict.
        """
        self._inbox = inbox
        self._clock = clock
        self._sender = sender
        self._wake = wake
        self._max_body_bytes = max_body_bytes
        self._deadline_seconds = deadline_seconds
        self._known_types = known_types
        # Reading may take most of the deadline; the rest is for the commit.
        self._body_deadline = BodyDeadline(deadline_seconds * 0.7)
        self._rejections = RejectionLog()

    def accept(
        self,
        environ: Mapping[str, Any],
        headers: Mapping[str, str],
        source: Source,
        cached_body: Callable[[], bytes] = bytes,
    ) -> WebhookResponse:
        """Accept one POST. `cached_body` returns the body if a hook of the app has consumed it already."""
        deadline = time.monotonic() + self._deadline_seconds
        try:
            # Read before any check: unread body bytes would be parsed as the connection's next request.
            body = self._read_body(environ, cached_body)
            event_type = _read_event_type(environ)
            now = self._clock.now()
            verified = source.scheme.verify(
                headers,
                body,
                source.keys,
                event_type=event_type,
                now=now,
                tolerance_seconds=source.tolerance_seconds,
            )
            if PROBE in environ and find_probe(environ) is not None:
                return PROBE_RESPONSE
            incoming = NewDelivery(
                source.name,
                verified.key,
                event_type,
                body,
                _headers_to_store(environ),
                verified.signed_at,
                now,
                event_type in self._known_types,
            )
            receipt = self._inbox.put(incoming, deadline - time.monotonic())
        except (RequestError, SignatureError, InboxUnavailable) as error:
            return self._reject(source, error)
        self._rejections.flush()
        self._emit_stored(incoming, receipt)
        return success_response(receipt.status)

    def start(self) -> None:
        """Start the threads that `accept` needs, rather than at its first call. Raises OutOfResources."""
        self._body_deadline.start()
        self._inbox.start()

    def out_of_memory(self, source: Source) -> WebhookResponse:
        """Return the response when memory ran out during a delivery, which may have been stored anyway."""
        error = OutOfResources("there is no memory left")
        with suppress(MemoryError):
            return self._reject(source, error)
        return error_response(error)

    def close(self) -> None:
        """Log the rejections that were counted but not logged yet; call it when the process ends."""
        self._rejections.flush(all_of_them=True)

    def _read_body(self, environ: Mapping[str, Any], cached_body: Callable[[], bytes]) -> bytes:
        connection = environ.get("gunicorn.socket")
        with nullcontext() if connection is None else self._body_deadline.reading(connection):
            try:
                body = read_body(environ, self._max_body_bytes) or cached_body()
            except BodyIncomplete:
                body = cached_body()  # no longer than Content-Length, which is within the limit
                if str(len(body)) != environ.get("CONTENT_LENGTH", "").lstrip("0"):
                    close_connection(environ)
                    raise
        if len(body) > self._max_body_bytes:  # chunked, and read by something in the app
            raise BodyTooLarge
        if environ.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() not in ("", "identity"):
            raise UnsupportedEncoding  # the body is not the bytes that were signed
        return body

    def answered(self) -> None:
        """Note that the response to this thread's delivery has been sent."""
        self._inbox.response_sent()

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

    def _reject(
        self, source: Source, error: RequestError | SignatureError | InboxUnavailable
    ) -> WebhookResponse:
        answer = error_response(error)
        level = logging.ERROR if isinstance(error, InboxUnavailable) else logging.WARNING
        # The cause, never the request's content: an attacker must not write our log.
        reason = f"{error.cause}: {error}" if isinstance(error, InboxUnavailable) else error.cause
        text = f"delivery to source {source.name} refused with {answer.status} ({printable(reason)})"
        self._rejections.record(source.name, error.cause, level, text)
        emit(delivery_rejected, self._sender, source=source.name, status=answer.status, cause=error.cause)
        return answer

    def _emit_stored(self, incoming: NewDelivery, receipt: Receipt) -> None:
        facts = {"source": incoming.source, "key": incoming.key, "event_type": incoming.event_type}
        if receipt.status is PutStatus.ACCEPTED:
            emit(delivery_accepted, self._sender, delivery_id=receipt.delivery_id, **facts)
            try:
                self._wake(receipt.delivery_id)
            except Exception:
                # It is stored, so the response stays 200; the engine finds the delivery at its next poll.
                logger.exception("could not wake the engine for delivery %d", receipt.delivery_id)
        elif receipt.status in (PutStatus.DUPLICATE, PutStatus.SURPLUS):
            if receipt.status is PutStatus.SURPLUS:
                text = "not stored: %s contradicts delivery %d, whose key has all the conflicts that are kept"
                logger.warning(text, incoming.event_type or "a delivery without a type", receipt.delivery_id)
            emit(delivery_duplicate, self._sender, **facts)
        else:
            self._emit_quarantined(incoming, receipt, facts)

    def _emit_quarantined(self, incoming: NewDelivery, receipt: Receipt, facts: dict[str, str]) -> None:
        """Log and emit a quarantined delivery: it conflicts with another one, or has no type."""
        text = "delivery %d (%s) is quarantined: %s"
        named = incoming.event_type or "no type"
        logger.warning(text, receipt.delivery_id, named, receipt.error)
        if receipt.conflict_of is not None:
            found = {"delivery_id": receipt.delivery_id, "conflict_of": receipt.conflict_of}
            stored_as = receipt.stored_event_type
            emit(delivery_conflict, self._sender, stored_event_type=stored_as, **found, **facts)
        emit(
            delivery_quarantined,
            self._sender,
            delivery_id=receipt.delivery_id,
            event_type=incoming.event_type,
            error=receipt.error,
        )


def _read_event_type(environ: Mapping[str, Any]) -> str:
    """Return the event type of the request, or "" if it is missing, malformed or sent twice.

    A scheme that signs the type verifies no delivery with "": the signed type is unknown then, so the result
    is a 401 like any other mismatch. Source: spec, "Events", rule 1 (the type is in X-Webhook-Type only).
    """
    event_type: str = environ.get("HTTP_X_WEBHOOK_TYPE", "")
    return event_type if _TYPE.fullmatch(event_type) else ""


def _headers_to_store(environ: Mapping[str, Any]) -> str:
    """Return the request's headers as JSON, without credentials, for `billhook deliveries show`."""
    kept = {
        name[5:]: value
        for name, value in environ.items()
        if name.startswith("HTTP_") and not _CREDENTIAL.search(name)
    }
    if "CONTENT_TYPE" in environ:
        kept["CONTENT_TYPE"] = environ["CONTENT_TYPE"]
    return json.dumps(kept)
