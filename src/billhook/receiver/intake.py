"""One delivery from its request to its answer, without Flask: read, verify, store. Nothing else.

The body is not looked into here: whatever an authentic sender says is stored first and judged later, and
whatever anybody else says is not even parsed. That holds for the type too: an authentic delivery that names
none is kept, and one that does not verify is refused as such, whatever its type header.
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
from billhook.inbox import Inbox, Incoming, Receipt, Verdict
from billhook.printable import printable
from billhook.receiver.answers import PROBED, Answer, answer_to, stored
from billhook.receiver.body import SlowBodyWatch, drain, give_up, read_body
from billhook.receiver.probe import probe_of
from billhook.receiver.refusals import Refusals
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

# Source: design of the type header: one ASCII name. Two header lines arrive joined by a comma, so they fail.
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
# Credentials for something else that a proxy or a sender may add; not ours to keep. Signatures are kept: they
# are good for these bytes only, and whoever looks into a dispute needs them.
_CREDENTIAL = re.compile(r"AUTH|COOKIE|TOKEN|SECRET|PASSW|CREDENTIAL|SESSION|API_?KEY|ACCESS_?KEY|JWT")


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
        known_types: Container[str],
    ) -> None:
        """`wake` is called with the id of each accepted delivery; the answer does not depend on it.

        `known_types` are those with a model; all others share one place beside a known key.
        """
        self._inbox = inbox
        self._clock = clock
        self._sender = sender
        self._wake = wake
        self._max_body_bytes = max_body_bytes
        self._deadline_seconds = deadline_seconds
        self._known_types = known_types
        # Reading may take most of the deadline; the rest is for the commit.
        self._slow_bodies = SlowBodyWatch(deadline_seconds * 0.7)
        self._refusals = Refusals()

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
            _check_encoding(environ)
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
            if probe_of(environ) is not None:
                return PROBED
            incoming = Incoming(
                source.name,
                verified.key,
                event_type,
                body,
                _kept(environ),
                verified.signed_at,
                now,
                event_type in self._known_types,
            )
            receipt = self._inbox.put(incoming, deadline - time.monotonic())
        except (RequestError, SignatureError, InboxUnavailable) as error:
            return self._reject(source, error)
        self._refusals.tell()
        self._announce(incoming, receipt)
        return stored(receipt.verdict)

    def start(self) -> None:
        """Start what an accept needs threads for, now rather than at first use. Raises OutOfResources."""
        self._slow_bodies.start()
        self._inbox.start()

    def exhausted(self, source: Source) -> Answer:
        """The answer to a delivery for which there was no memory; it may have been stored all the same."""
        error = OutOfResources("there is no memory left")
        with suppress(MemoryError):
            return self._reject(source, error)
        return answer_to(error)

    def close(self) -> None:
        """The process ends: tell what was counted and not told yet."""
        self._refusals.tell(all_of_them=True)

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
        if connection is None:  # another server's own rules hold for its unread bodies
            return
        try:
            with self._slow_bodies.reading(connection):
                drain(environ)
        except OutOfResources:
            give_up(environ)

    def _reject(self, source: Source, error: RequestError | SignatureError | InboxUnavailable) -> Answer:
        answer = answer_to(error)
        level = logging.ERROR if isinstance(error, InboxUnavailable) else logging.WARNING
        # The cause, never what came: an attacker does not write our log.
        reason = f"{error.cause}: {error}" if isinstance(error, InboxUnavailable) else error.cause
        text = f"delivery to source {source.name} refused with {answer.status} ({printable(reason)})"
        self._refusals.note(source.name, error.cause, level, text)
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
        elif receipt.verdict in (Verdict.DUPLICATE, Verdict.SURPLUS):
            if receipt.verdict is Verdict.SURPLUS:
                text = "not stored: %s contradicts delivery %d, whose key has all the conflicts that are kept"
                logger.warning(text, incoming.event_type or "a delivery without a type", receipt.delivery_id)
            emit(delivery_duplicate, self._sender, **facts)
        else:
            self._announce_quarantined(incoming, receipt, facts)

    def _announce_quarantined(self, incoming: Incoming, receipt: Receipt, facts: dict[str, str]) -> None:
        """What is stored, and waits for an operator: it contradicts another delivery, or names no type."""
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


def _check_encoding(environ: Mapping[str, Any]) -> None:
    """Raise UnsupportedEncoding for a body that is not as it was signed."""
    if environ.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() not in ("", "identity"):
        raise UnsupportedEncoding


def _event_type(environ: Mapping[str, Any]) -> str:
    """The type named by the request, or "" when that is missing, malformed or sent twice.

    A scheme that signs the type verifies no delivery with "": what was signed is not known then, so that is
    a 401 as any other mismatch. Source: spec, "Events", rule 1 (the type is in X-Webhook-Type only).
    """
    event_type: str = environ.get("HTTP_X_WEBHOOK_TYPE", "")
    return event_type if _TYPE.fullmatch(event_type) else ""


def _kept(environ: Mapping[str, Any]) -> str:
    """The request's headers as JSON, for whoever looks at the delivery later."""
    kept = {
        name[5:]: value
        for name, value in environ.items()
        if name.startswith("HTTP_") and not _CREDENTIAL.search(name)
    }
    if "CONTENT_TYPE" in environ:
        kept["CONTENT_TYPE"] = environ["CONTENT_TYPE"]
    return json.dumps(kept)
