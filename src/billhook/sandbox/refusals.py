"""What is answered when a request is not done. Source: spec, "Errors".

The specification gives HTTP statuses for POST /login only; the others here are the usual ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from billhook.errors import Refusal
from billhook.resources import ErrorBody, WrongParam

__all__ = ["invalid_request", "not_authenticated", "not_found", "rate_limited", "too_large", "unavailable"]

_INVALID = "invalid_request_error"


def invalid_request(
    message: str, *params: str, code: str = "invalid_request", details: Sequence[WrongParam] = ()
) -> Refusal:
    """400, for a request that breaks a rule; `params` are the names of what is wrong, as on the wire."""
    wrong = list(details) or [WrongParam(param=param, message=message) for param in params]
    which: dict[str, Any] = {}
    if wrong:
        which = {"param": wrong[0].param} if len(wrong) == 1 else {"params": wrong}
    return _refusal(400, ErrorBody(type=_INVALID, code=code, message=message, **which))


def not_found(what: str) -> Refusal:
    """404: there is no such thing. `what` is a noun, and never the id that was asked for."""
    body = ErrorBody(type=_INVALID, code="resource_not_found", message=f"there is no such {what}")
    return _refusal(404, body)


def too_large(message: str) -> Refusal:
    """413, request_too_large."""
    return _refusal(413, ErrorBody(type=_INVALID, code="request_too_large", message=message))


def not_authenticated(message: str) -> Refusal:
    """401, whatever is wrong with the credentials."""
    body = ErrorBody(type="authentication_error", code="authentication_failed", message=message)
    return _refusal(401, body)


def rate_limited(retry_after_seconds: int) -> Refusal:
    """429, with the time after which to come again."""
    message = f"too many requests: come again in {retry_after_seconds} s"
    body = ErrorBody(type="rate_limit_error", code="rate_limit_exceeded", message=message)
    return _refusal(429, body, retry_after_seconds)


def unavailable(message: str) -> Refusal:
    """503: the sandbox can do nothing more."""
    return _refusal(503, ErrorBody(type="api_error", code="internal_error", message=message))


def _refusal(status: int, body: ErrorBody, retry_after_seconds: int | None = None) -> Refusal:
    return Refusal(status, body.code, body.message, body.to_response(), retry_after_seconds)
