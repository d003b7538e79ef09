"""Every answer the receiver can give. Constant bytes: nothing that came in goes out again.

Source: spec, "Errors" (the shape of an error body) and "Events" (a receiver answers with a 2xx status).
"""

from __future__ import annotations

import json
import secrets
from typing import NamedTuple

from billhook.errors import InboxUnavailable, RequestError, SignatureError
from billhook.inbox.records import Verdict

__all__ = ["PROBED", "Answer", "answer_to", "method_not_allowed", "stored"]


class Answer(NamedTuple):
    """Status, JSON body and extra headers."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def _error(status: int, kind: str, code: str, message: str) -> Answer:
    return Answer(status, json.dumps({"type": kind, "code": code, "message": message}).encode())


_ACCEPTED = Answer(200, b'{"status": "accepted"}')
_DUPLICATE = Answer(200, b'{"status": "duplicate"}')
PROBED = Answer(200, b'{"status": "probed"}')
"""To a probe of this process, which is not stored: nobody outside can send one."""
_UNAUTHENTICATED = _error(
    401, "authentication_error", "authentication_failed", "The delivery could not be authenticated."
)
_UNAVAILABLE = _error(503, "api_error", "internal_error", "The delivery could not be stored; send it again.")
_METHOD = _error(405, "invalid_request_error", "method_not_allowed", "Deliveries are sent with POST.")
_REQUESTS = {
    "body_incomplete": _error(
        400, "invalid_request_error", "incomplete_body", "The body ended before all of it came."
    ),
    "body_too_large": _error(413, "invalid_request_error", "request_too_large", "The body is too large."),
    "content_encoding": _error(
        415, "invalid_request_error", "unsupported_content_encoding", "Send the body without encoding."
    ),
}


def stored(verdict: Verdict) -> Answer:
    """The 200 of a delivery that is on stable storage, now or since before."""
    return _DUPLICATE if verdict in (Verdict.DUPLICATE, Verdict.SURPLUS) else _ACCEPTED


def answer_to(error: RequestError | SignatureError | InboxUnavailable) -> Answer:
    """The answer to a delivery that was not stored; every SignatureError gets the same bytes."""
    if isinstance(error, SignatureError):
        return _UNAUTHENTICATED
    if isinstance(error, RequestError):
        return _REQUESTS[error.cause]
    # Spread over a minute, so that senders do not all come back at once.
    return _UNAVAILABLE._replace(headers=(("Retry-After", str(5 + secrets.randbelow(56))),))


def method_not_allowed() -> Answer:
    """The answer to anything but POST."""
    return _METHOD._replace(headers=(("Allow", "POST"),))
