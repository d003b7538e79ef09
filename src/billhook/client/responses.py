"""Parse responses into models, or into the errors they stand for. Source: spec, "Errors"."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from billhook.client.operation import ApiOperation
from billhook.client.retries import retry_after_seconds
from billhook.client.transport import ApiResponse, Redactor
from billhook.errors import (
    ApiError,
    AuthenticationFailed,
    InternalError,
    InvalidJSON,
    InvalidRequest,
    RateLimitExceeded,
    RequestTooLarge,
    ResourceError,
    ResourceNotFound,
    ServiceError,
    UnexpectedResponse,
)
from billhook.fields import strict_json
from billhook.fields.model import describe_details
from billhook.resources import ErrorBody, ErrorCode, ErrorType, Resource

__all__ = ["MESSAGE_CHARACTERS", "parse_error", "parse_json", "parse_object", "parse_response"]

R = TypeVar("R", bound=Resource)

# Bounds for error texts: a service that is broken may send pages of HTML.
_EXCERPT_CHARACTERS = 200
MESSAGE_CHARACTERS = 1_000
_MOST_PARAMS = 50

_BY_TYPE: dict[str, type[ServiceError]] = {
    ErrorType.INVALID_REQUEST_ERROR: InvalidRequest,
    ErrorType.AUTHENTICATION_ERROR: AuthenticationFailed,
    ErrorType.RATE_LIMIT_ERROR: RateLimitExceeded,
    ErrorType.API_ERROR: InternalError,
}
_BY_CODE: dict[str, type[ServiceError]] = {
    ErrorCode.RESOURCE_NOT_FOUND: ResourceNotFound,
    ErrorCode.REQUEST_TOO_LARGE: RequestTooLarge,
}


def parse_error(
    operation: ApiOperation, answer: ApiResponse, redactor: Redactor, now: datetime
) -> ApiError | None:
    """Return the error of a response, None for a success. An unlisted error type is UnexpectedResponse."""
    if 200 <= answer.status < 300:
        return None
    wait_seconds = retry_after_seconds(answer.retry_after, now)
    body = _validated(answer, ErrorBody)
    kind = None if isinstance(body, str) else _BY_TYPE.get(body.type)
    if isinstance(body, ErrorBody) and kind is not None:
        return _service_error(kind, operation, answer.status, body, redactor, wait_seconds)
    # Not followed: the request would carry the tokens to an address that is not configured.
    if 300 <= answer.status < 400:
        problem = "it leads to another address, where tokens are not taken; check the base address"
    else:
        problem = body if isinstance(body, str) else "its error is of a type that is not listed"
    return _unexpected(operation, answer, redactor, problem, wait_seconds)


def parse_response(operation: ApiOperation, answer: ApiResponse, model: type[R], redactor: Redactor) -> R:
    """Parse the body of a success as `model`. Raises UnexpectedResponse."""
    found = _validated(answer, model)
    if isinstance(found, str):
        raise _unexpected(operation, answer, redactor, found)
    return found


def parse_object(operation: ApiOperation, answer: ApiResponse, redactor: Redactor) -> dict[str, Any]:
    """Parse a body that the specification does not show; {} if empty. Raises UnexpectedResponse."""
    if not answer.body.strip():
        return {}
    problem = _no_json(answer)
    found = None if problem else _object_in(answer.body)
    if found is None:
        raise _unexpected(operation, answer, redactor, problem or "it is no JSON object")
    return found


def parse_json(operation: ApiOperation, answer: ApiResponse, redactor: Redactor) -> object:
    """Return the decoded JSON of a success, None for an empty body. Raises UnexpectedResponse."""
    if not answer.body.strip():
        return None
    problem = _no_json(answer)
    if problem is None:
        try:
            return strict_json.loads(answer.body)
        except InvalidJSON as error:
            problem = str(error)
    raise _unexpected(operation, answer, redactor, problem)


def _validated(answer: ApiResponse, model: type[R]) -> R | str:
    """Return the model, or the reason why there is none.

    Separate from its callers, so that no local variable of a raising frame holds the body's values.
    """
    problem = _no_json(answer)
    if problem is not None:
        return problem
    try:
        return model.from_json(answer.body)
    except ResourceError as error:
        details = getattr(error, "details", ())
        wrong = describe_details(details[:5])
        return f"{error} ({wrong})" if wrong else str(error)


def _no_json(answer: ApiResponse) -> str | None:
    kind = answer.content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return None
    return "it is not JSON" if not kind else "its content type is not application/json"


def _object_in(body: bytes) -> dict[str, Any] | None:
    try:
        found = strict_json.loads(body)
    except InvalidJSON:
        return None
    return found if isinstance(found, dict) else None


def _service_error(
    kind: type[ServiceError],
    operation: ApiOperation,
    status: int,
    body: ErrorBody,
    redactor: Redactor,
    wait_seconds: float | None,
) -> ServiceError:
    def clean(text: str) -> str:
        return redactor.clean(text, MESSAGE_CHARACTERS)

    # The code is more specific than the type; codes that are not listed keep the type's class.
    if kind is InvalidRequest:
        kind = _BY_CODE.get(body.code, kind)
    return kind(
        operation.name,
        status=status,
        type=str(body.type),
        code=clean(body.code),
        message=clean(body.message),
        param=None if body.param is None else clean(body.param),
        params=[
            {"param": clean(each.param), "message": clean(each.message)}
            for each in (body.params or ())[:_MOST_PARAMS]
        ],
        retry_after_seconds=wait_seconds,
    )


def _unexpected(
    operation: ApiOperation,
    answer: ApiResponse,
    redactor: Redactor,
    problem: str,
    wait_seconds: float | None = None,
) -> UnexpectedResponse:
    # The response to a login holds the token; if it cannot be parsed, any part of it may be the token.
    hidden = operation.path == "/login" and answer.status < 300
    text = "" if hidden else answer.body.decode("utf-8", "replace")
    return UnexpectedResponse(
        operation.name,
        redactor.clean(problem, MESSAGE_CHARACTERS),
        status=answer.status,
        excerpt=redactor.clean(text, _EXCERPT_CHARACTERS),
        retry_after_seconds=wait_seconds,
    )
