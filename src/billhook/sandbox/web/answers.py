"""From what an operation gives to a response."""

from __future__ import annotations

from flask import Response

from billhook.errors import Refusal
from billhook.resources import ErrorBody, Resource

__all__ = ["answer", "failure", "refused"]


def answer(given: Resource | bytes | None) -> Response:
    """200 and the JSON of what was given; an empty object for None."""
    if given is None:
        given = b"{}"
    body = given if isinstance(given, bytes) else given.to_response()
    return Response(body, mimetype="application/json")


def refused(refusal: Refusal) -> Response:
    """The status and the error body of a refusal."""
    response = Response(refusal.body, status=refusal.status, mimetype="application/json")
    if refusal.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(refusal.retry_after_seconds)
    if refusal.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def failure(status: int, message: str) -> Response:
    """An error that is not the business's: no such address, no such method, a fault of the sandbox."""
    server = status >= 500
    body = ErrorBody(
        type="api_error" if server else "invalid_request_error",
        code="internal_error" if server else {404: "resource_not_found"}.get(status, "invalid_request"),
        message=message,
    )
    return Response(body.to_response(), status=status, mimetype="application/json")
