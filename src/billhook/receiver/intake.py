"""One delivery from its request to its answer, without Flask: read, verify, store. Nothing else.

The type and the body are not looked into here: whatever an authentic sender says is stored first and
judged later, and whatever anybody else says is not even parsed.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from billhook.clock import Clock
from billhook.errors import (
    BadTypeHeader,
    BodyIncomplete,
    BodyTooLarge,
    InboxUnavailable,
    RequestError,
    SignatureError,
    UnsupportedEncoding,
)
from billhook.inbox import Inbox, Incoming, Receipt, Verdict
from billhook.receiver.answers import Answer, answer_to, stored
from billhook.receiver.body import SlowBodyWatch, drain, give_up, read_body
from billhook.signals import (
    delivery_accepted,
    delivery_conflict,
    delivery_duplicate,
    delivery_rejected,
    emit,
)
from billhook.signing.source import Source

__all__ = ["Intake"]

logger = logging.getLogger("billhook.receiver")

# Source: design of the type header: one ASCII name. Two header lines arrive joined by a comma, so they fail.
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
# Credentials for something else that a proxy or a sender may add; not ours to keep.
_NOT_KEPT = frozenset({"HTTP_AUTHORIZATION", "HTTP_PROXY_AUTHORIZATION", "HTTP_COOKIE"})


class Intake:
    """What a delivery needs on its way in. `sender` is who emits the signals: the Flask app."""

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        *,
        sender: object,
        wake: Callable[[int], None],
        max_body_bytes: int,
        deadline_seconds: float,
    ) -> None:
        """`wake` is called with the id of each accepted delivery; the answer does not depend on it."""
        self._inbox = inbox
        self._clock = clock
        self._sender = sender
        self._wake = wake
        self._max_body_bytes = max_body_bytes
        self._deadline_seconds = deadline_seconds
        # Reading may take most of the deadline; the rest is for the commit.
        self._slow_bodies = SlowBodyWatch(deadline_seconds * 0.7)

    def accept(
        self,
        environ: Mapping[str, Any],
        headers: Mapping[str, str],
        source: Source,
        read_before: Callable[[], bytes] = bytes,
    ) -> Answer:
        """Take one POST. `read_before` gives the body if something in the app has consumed it already."""
        deadline = time.monotonic() + self._deadline_seconds
        try:
            body = self._read(environ, read_before)  # first, whatever else is wrong: none of it stays behind
            event_type = _event_type(environ)
            now = self._clock.now()
            verified = source.scheme.verify(
                headers,
                body,
                source.keys,
                event_type=event_type,
                now=now,
                tolerance_seconds=source.tolerance_seconds,
            )
            incoming = Incoming(
                source.name, verified.key, event_type, body, _kept(environ), verified.signed_at, now
            )
            receipt = self._inbox.put(incoming, deadline - time.monotonic())
        except (RequestError, SignatureError, InboxUnavailable) as error:
            return self._reject(source, error)
        self._announce(incoming, receipt)
        return stored(receipt.verdict)

    def _read(self, environ: Mapping[str, Any], read_before: Callable[[], bytes]) -> bytes:
        connection = environ.get("gunicorn.socket")
        with nullcontext() if connection is None else self._slow_bodies.reading(connection):
            try:
                body = read_body(environ, self._max_body_bytes) or read_before()
            except BodyIncomplete:
                body = read_before()  # no longer than Content-Length, which is within the limit
                if str(len(body)) != environ.get("CONTENT_LENGTH", "").lstrip("0"):
                    give_up(environ)
                    raise
        if len(body) > self._max_body_bytes:  # chunked, and read by something in the app
            raise BodyTooLarge
        return body

    def answered(self) -> None:
        """The answer to what this thread accepted is sent."""
        self._inbox.answered()

    def drain(self, environ: Mapping[str, Any]) -> None:
        """Read the rest of a body that was refused unread; to be called when the answer is sent."""
        connection = environ.get("gunicorn.socket")
        if connection is not None:  # another server's own rules hold for its unread bodies
            with self._slow_bodies.reading(connection):
                drain(environ)

    def _reject(self, source: Source, error: RequestError | SignatureError | InboxUnavailable) -> Answer:
        answer = answer_to(error)
        level = logging.ERROR if isinstance(error, InboxUnavailable) else logging.WARNING
        # The cause, never what came: an attacker does not write our log.
        reason = f"{error.cause}: {error}" if isinstance(error, InboxUnavailable) else error.cause
        logger.log(level, "delivery to source %s refused with %d (%s)", source.name, answer.status, reason)
        emit(delivery_rejected, self._sender, source=source.name, status=answer.status, cause=error.cause)
        return answer

    def _announce(self, incoming: Incoming, receipt: Receipt) -> None:
        facts = {"source": incoming.source, "key": incoming.key, "event_type": incoming.event_type}
        if receipt.verdict is Verdict.ACCEPTED:
            emit(delivery_accepted, self._sender, delivery_id=receipt.delivery_id, **facts)
            try:
                self._wake(receipt.delivery_id)
            except Exception:
                # It is stored, so the sender is told so; an engine finds it without a ring.
                logger.exception("no engine was told of delivery %d", receipt.delivery_id)
        elif receipt.verdict is Verdict.DUPLICATE:
            emit(delivery_duplicate, self._sender, **facts)
        else:
            logger.warning(
                "delivery %d came again under another type: stored as %s, now sent as %s",
                receipt.delivery_id,
                receipt.stored_event_type,
                incoming.event_type,
            )
            emit(delivery_conflict, self._sender, stored_event_type=receipt.stored_event_type, **facts)


def _event_type(environ: Mapping[str, Any]) -> str:
    """The type named by the request; raises UnsupportedEncoding or BadTypeHeader.

    Source: spec, "Events", rule 1 (the type is in the header X-Webhook-Type only).
    """
    if environ.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() not in ("", "identity"):
        raise UnsupportedEncoding
    event_type: str = environ.get("HTTP_X_WEBHOOK_TYPE", "")
    if not _TYPE.fullmatch(event_type):
        raise BadTypeHeader
    return event_type


def _kept(environ: Mapping[str, Any]) -> str:
    """The request's headers as JSON, for whoever looks at the delivery later."""
    kept = {
        name[5:]: value
        for name, value in environ.items()
        if name.startswith("HTTP_") and name not in _NOT_KEPT
    }
    if "CONTENT_TYPE" in environ:
        kept["CONTENT_TYPE"] = environ["CONTENT_TYPE"]
    return json.dumps(kept)
