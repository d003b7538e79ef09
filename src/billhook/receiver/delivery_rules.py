"""Decide what is checked of a delivery, in which order, and what is answered; without I/O.

The body is not parsed here: a verified delivery is stored first and parsed later, and an unverified one is
never parsed. The same holds for the type: a verified delivery without a type is stored, and an unverified one
is rejected as unverified, no matter what its type header says.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Self

from pydantic_core import to_json

from billhook.basics.printable import printable
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
from billhook.inbox import OTHER_TYPES, Counted, NewDelivery, PutStatus, Receipt
from billhook.logs import LimitedLog, fields
from billhook.receiver.responses import ACCEPTED, DUPLICATE, WebhookResponse, error_response
from billhook.signals import (
    delivery_accepted,
    delivery_conflict,
    delivery_duplicate,
    delivery_quarantined,
    delivery_rejected,
    emit,
)
from billhook.signing.source import TYPE_HEADER, Source

logger = logging.getLogger("billhook.receiver")

SIGNALS = (
    delivery_accepted,
    delivery_conflict,
    delivery_duplicate,
    delivery_quarantined,
    delivery_rejected,
)
"""The signals of DeliveryRules: if one has an observer, `stored` or `emit_rejected` call code of the app."""

Refusal = RequestError | SignatureError | InboxUnavailable


DRAIN_BYTES = 1024 * 1024
"""The most that is read of a rejected body, so that its sender reads the response."""

# Credentials that a proxy or a sender may add are not stored. Signatures are: they are valid for these bytes
# only, and an operator needs them to settle a dispute with the sender.
CREDENTIAL = re.compile(
    r"AUTH|COOKIE|TOKEN|SECRET|PASSW|PASSPHRASE|PASSCODE|_PWD|_PAT$|_PIN$|_OTP$|CREDENTIAL|SESSION|JWT|BEARER"
    r"|ASSERTION|SAML|OIDC|WSSE|CLIENT_?PRINCIPAL|CLIENT_?CERT|API_?KEY|ACCESS_?KEY|(?<!IDEMPOTENCY)(?:_|^)KEY$"
)
"""Matches the names of headers that hold credentials, in CGI's spelling; pages mask such values too."""


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
        return to_json(kept).decode()  # `json` takes five times as long: a twentieth of a delivery


@lru_cache(256)
def _from_cgi(key: str) -> str:
    return key[5:].replace("_", "-").lower()


@lru_cache(256)
def _stored_name(name: str) -> str | None:
    """Return the name under which a header is stored, in CGI's spelling; None if it is not stored."""
    key = name.upper().replace("-", "_")
    # An ASGI server may pass X_Webhook_Type beside X-Webhook-Type: it must not take the real one's place.
    return None if "_" in name or key == "CONTENT_LENGTH" or CREDENTIAL.search(key) else key


def declared_length(text: str, limit_bytes: int) -> int | None:
    """Return what Content-Length says, None for "". Raises BodyIncomplete or BodyTooLarge."""
    if not text:
        return None
    digits = text.lstrip("0") or "0"
    if not (text.isascii() and text.isdigit() and len(digits) <= 18):
        raise BodyIncomplete("Content-Length is no number")
    length = int(digits)
    if length > limit_bytes:
        raise BodyTooLarge(f"over {limit_bytes} bytes")
    return length


class DeliveryRules:
    """Verify and answer deliveries of all sources of one app. `sender`, the Flask app, sends its signals.

    Does no I/O of its own: a receiver reads the body, calls `verify`, stores the delivery, and answers with
    what `stored` or `rejected` returns. `billhook.receiver.wsgi` and `billhook.receiver.asgi` are the two.
    """

    def __init__(
        self,
        clock: Clock,
        inbox_clock: Clock,
        *,
        sender: object,
        wake: Callable[[int], None] | None,
        count: Callable[..., None],
        known_types: Container[str],
        max_body_bytes: int,
        deadline_seconds: float,
        wake_blocks: bool = False,
    ) -> None:
        """`clock` decides on the age of a signature, `inbox_clock` when a delivery was received: a sender's
        clock is not the database server's.

        `wake` is called with the id of each accepted delivery; the response does not depend on it.
        None where nothing in this process handles deliveries.

        `count` counts refusals and duplicates; see billhook.inbox.Inbox.count.

        `wake_blocks` says that it handles the delivery, rather than have a thread or process do so.
        `known_types` are the event types with a model. For a known key, at most one delivery of all other
        types together is stored as a conflict.
        """
        self.clock = clock
        self.inbox_clock = inbox_clock
        self._sender = sender
        self._wake = wake
        self._count = count
        self._known_types = known_types
        self.wake_blocks = wake_blocks
        self.max_body_bytes = max_body_bytes
        self.deadline_seconds = deadline_seconds
        """The time from the head of a request to its response."""
        self.body_seconds = deadline_seconds * 0.7
        """The part of that time in which the body has to arrive; the rest is for the commit."""
        self._rejections = LimitedLog(logger)

    def verify(self, source: Source, headers: RequestHeaders, body: bytes) -> NewDelivery:
        """Return the delivery to store. Raises UnsupportedEncoding and SignatureError."""
        if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise UnsupportedEncoding  # the body is not the bytes that were signed
        # "" if it is missing, malformed or sent twice, or in the body, where a worker reads it. A scheme that
        # signs the type verifies no delivery with "": the signed type is unknown then, so the result is a 401
        # like any other mismatch.
        # Source: spec, "Events", rule 1 (the type is in a header only).
        named: str = ""
        if source.type_field is None:
            named = headers.get(source.type_header or TYPE_HEADER, "")
        event_type = named if source.type_names.fullmatch(named) else ""
        verified = source.scheme.verify(
            headers,
            body,
            source.keys,
            event_type=event_type,
            now=self.clock.now(),
            tolerance_seconds=source.tolerance_seconds,
        )
        return NewDelivery(
            source.name,
            verified.key,
            event_type,
            body,
            headers.stored(),
            verified.signed_at,
            self.inbox_clock.now(),
            event_type in self._known_types,
            source.type_field,
            "" if event_type or source.type_field else _why_untyped(source.type_header or TYPE_HEADER, named),
        )

    def stored(self, delivery: NewDelivery, receipt: Receipt) -> WebhookResponse:
        """Emit the signals of a committed delivery, wake the engine, and return the response."""
        if self._rejections.kinds:
            self._rejections.flush()
        if receipt.status is not PutStatus.ACCEPTED:
            return self._stored_before(delivery, receipt)
        if delivery_accepted.receivers:
            emit(delivery_accepted, self._sender, delivery_id=receipt.delivery_id, **_facts(delivery))
        if self._wake is not None:
            try:
                self._wake(receipt.delivery_id)
            except Exception as error:
                # It is stored, so the response stays 200; the engine finds the delivery at its next poll.
                text = "could not wake the engine for delivery %d"
                extra = _record_fields(delivery, error, receipt.delivery_id)
                logger.exception(text, receipt.delivery_id, extra=extra)
        return ACCEPTED

    def rejected(self, source: Source, error: Refusal) -> WebhookResponse:
        """Log a delivery that is not stored, emit its signal, and return the response."""
        answer = self.refused(source, error)
        self.emit_rejected(source, error)
        return answer

    def refused(self, source: Source, error: Refusal) -> WebhookResponse:
        """Return the response as `rejected` does, without emitting the signal."""
        answer = error_response(error)
        level = logging.ERROR if isinstance(error, InboxUnavailable) else logging.WARNING
        # The cause, never the request's content: an attacker must not write our log.
        reason = f"{error.cause}: {error}" if isinstance(error, InboxUnavailable) else error.cause
        text = f"delivery to source {source.name} refused with {answer.status} ({printable(reason)})"
        self._log_rejection(source.name, error.cause, text, level)
        age_seconds = error.age_seconds if isinstance(error, SignatureError) else None
        self._count(
            Counted.REFUSED,
            self.inbox_clock.now(),
            source=source.name,
            cause=error.cause,
            duration_seconds=None if age_seconds is None else abs(age_seconds),
        )
        return answer

    def refused_by_server(self, status: int) -> None:
        """Log and count a request that is not valid HTTP like any refusal; its source is not known."""
        cause = f"http_{status}"
        text = f"request refused by the server with {status} ({HTTPStatus(status).phrase})"
        self._log_rejection("", cause, text)
        self._count(Counted.REFUSED, self.inbox_clock.now(), source="", cause=cause, duration_seconds=None)

    def emit_rejected(self, source: Source, error: Refusal) -> None:
        """Call the observers of `delivery_rejected`."""
        status = error_response(error).status
        emit(delivery_rejected, self._sender, source=source.name, status=status, cause=error.cause)

    def log_slow_observers(self, source: Source) -> None:
        """Log, as refusals are logged, that observers of `delivery_rejected` are too slow."""
        text = f"observers of delivery_rejected are too slow: some are not called (source {source.name})"
        self._log_rejection(source.name, "observers", text)

    def _log_rejection(self, source: str, cause: str, text: str, level: int = logging.WARNING) -> None:
        self._rejections.log((source, cause), level, text, source=source, cause=cause)

    def out_of_memory(self, source: Source) -> WebhookResponse:
        """Return the response when memory ran out during a delivery, which may have been stored anyway."""
        error = OutOfResources("there is no memory left")
        with suppress(MemoryError):
            return self.rejected(source, error)
        return error_response(error)

    @staticmethod
    def not_stored(error: OutOfResources | MemoryError) -> InboxUnavailable:
        """Return what a verified delivery is refused by for which there was no memory or no thread.

        Of another cause than OutOfResources has, which strangers can bring about too: their requests are
        refused by it before a signature is verified.
        """
        return InboxUnavailable(str(error) or "there is no memory left")

    def close(self) -> None:
        """Log the rejections that were counted but not logged yet; call it when the process ends."""
        self._rejections.flush(all_of_them=True)

    def _stored_before(self, incoming: NewDelivery, receipt: Receipt) -> WebhookResponse:
        """Log, count and emit a delivery whose key was stored before, or that has no type."""
        if receipt.status not in (PutStatus.DUPLICATE, PutStatus.SURPLUS):
            self._emit_quarantined(incoming, receipt)
            return ACCEPTED
        if receipt.status is PutStatus.SURPLUS:
            text = (
                "the type %s is not kept: delivery %d has the same body, and names as many types as are kept"
            )
            extra = _record_fields(incoming, receipt.status, receipt.delivery_id)
            logger.warning(text, incoming.event_type, receipt.delivery_id, extra=extra)
        facts = _facts(incoming)
        if incoming.type_field is not None:  # as far as it is read: the bytes are the same
            facts["event_type"] = receipt.stored_event_type
        counted_as = facts["event_type"] if facts["event_type"] in self._known_types else OTHER_TYPES
        at, source = incoming.received_at, incoming.source
        self._count(Counted.DUPLICATE, at, source=source, event_type=counted_as)
        emit(delivery_duplicate, self._sender, **facts)
        return DUPLICATE

    def _emit_quarantined(self, incoming: NewDelivery, receipt: Receipt) -> None:
        """Log and emit a quarantined delivery: it conflicts with another one, or has no type."""
        text = "delivery %d (%s) is quarantined: %s"
        named = incoming.event_type or "no type"
        extra = _record_fields(incoming, receipt.status, receipt.delivery_id)
        logger.warning(text, receipt.delivery_id, named, receipt.error, extra=extra)
        if receipt.conflict_of is not None:
            found = {"delivery_id": receipt.delivery_id, "conflict_of": receipt.conflict_of}
            stored_as = receipt.stored_event_type
            facts = _facts(incoming)
            emit(delivery_conflict, self._sender, stored_event_type=stored_as, **found, **facts)
        emit(
            delivery_quarantined,
            self._sender,
            delivery_id=receipt.delivery_id,
            event_type=incoming.event_type,
            error=receipt.error,
        )


def _why_untyped(header: str, text: str) -> str:
    """Return why a header names no type; two lines of one header arrive joined by a comma."""
    why = "is missing" if not text else "is sent twice, or has a comma" if "," in text else "is malformed"
    return f"no event type: its header {header} {why}"


def _facts(delivery: NewDelivery) -> dict[str, str]:
    """Return what every signal about a stored delivery is sent with."""
    return {"source": delivery.source, "key": delivery.key, "event_type": delivery.event_type}


def _record_fields(
    delivery: NewDelivery, cause: str | Exception, delivery_id: int | None = None
) -> dict[str, object]:
    """Return the `extra` of a log record about a delivery."""
    return fields(
        delivery_id=delivery_id,
        source=delivery.source,
        key=delivery.key,
        event_type=delivery.event_type,
        cause=cause,
    )
