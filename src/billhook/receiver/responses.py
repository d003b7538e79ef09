"""Every response of the receiver. The bodies are constants: nothing of a request is echoed.

Source: spec, "Errors" (the shape of an error body) and "Events" (a receiver answers with a 2xx status).
"""

from __future__ import annotations

import json
import secrets
from typing import NamedTuple

from billhook.errors import InboxUnavailable, RequestError, SignatureError


class WebhookResponse(NamedTuple):
    """Status, JSON body and extra headers."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def _error(status: int, kind: str, code: str, message: str) -> WebhookResponse:
    return WebhookResponse(status, json.dumps({"type": kind, "code": code, "message": message}).encode())


ACCEPTED = WebhookResponse(200, b'{"status": "accepted"}')
DUPLICATE = WebhookResponse(200, b'{"status": "duplicate"}')
"""For a delivery that is committed, by this request or an earlier one."""
PROBE_RESPONSE = WebhookResponse(200, b'{"status": "probed"}')
"""For a probe, which is not stored; only this process itself can send one."""
_UNAUTHENTICATED = _error(
    401, "authentication_error", "authentication_failed", "The delivery could not be authenticated."
)
_UNAVAILABLE = _error(503, "api_error", "internal_error", "The delivery could not be stored; send it again.")
METHOD_NOT_ALLOWED = _error(
    405, "invalid_request_error", "method_not_allowed", "Deliveries are sent with POST."
)._replace(headers=(("Allow", "POST"),))
"""For any method but POST."""
OUT_OF_RESOURCES = WebhookResponse(503, b'{"status": "unavailable"}', (("Retry-After", "5"),))
"""For a page or a health check for which there is no thread or no memory."""
_INCOMPLETE = _error(400, "invalid_request_error", "incomplete_body", "The body ended before all of it came.")
_REQUESTS = {
    "body_incomplete": _INCOMPLETE,
    "body_too_large": _error(413, "invalid_request_error", "request_too_large", "The body is too large."),
    "content_encoding": _error(
        415, "invalid_request_error", "unsupported_content_encoding", "Send the body without encoding."
    ),
}


def error_response(error: RequestError | SignatureError | InboxUnavailable) -> WebhookResponse:
    """Return the response for a delivery that was not stored; identical for every SignatureError."""
    if isinstance(error, SignatureError):
        return _UNAUTHENTICATED
    if isinstance(error, RequestError):
        return _REQUESTS[error.cause]
    # Random within a minute, so that senders do not all retry at the same moment.
    return _UNAVAILABLE._replace(headers=(("Retry-After", str(5 + secrets.randbelow(56))),))
