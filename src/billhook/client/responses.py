"""Parse responses into models, or into the errors they stand for. Source: spec, "Errors"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from billhook import errors
from billhook.client.operation import ApiOperation
from billhook.client.redactor import Redactor
from billhook.client.retries import retry_after_seconds
from billhook.clock import Clock
from billhook.errors import ApiError, ServiceError, UnexpectedResponse
from billhook.resources import ErrorBody, ErrorCode, ErrorType, Resource
from billhook.wire import strict_json
from billhook.wire.model import describe_details

R = TypeVar("R", bound=Resource)
T = TypeVar("T")

# Bounds for error texts: a service that is broken may send pages of HTML.
_EXCERPT_CHARACTERS = 200
MESSAGE_CHARACTERS = 1_000
_MOST_PARAMS = 50

_BY_TYPE: dict[str, type[ServiceError]] = {
    ErrorType.INVALID_REQUEST_ERROR: errors.InvalidRequest,
    ErrorType.AUTHENTICATION_ERROR: errors.AuthenticationFailed,
    ErrorType.RATE_LIMIT_ERROR: errors.RateLimitExceeded,
    ErrorType.API_ERROR: errors.InternalError,
}
_BY_CODE: dict[str, type[ServiceError]] = {
    ErrorCode.RESOURCE_NOT_FOUND: errors.ResourceNotFound,
    ErrorCode.REQUEST_TOO_LARGE: errors.RequestTooLarge,
}


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A complete, decompressed response."""

    status: int
    content_type: str
    retry_after: str | None
    body: bytes = field(repr=False)


class ResponseParser:
    """Parses the responses to one client, whose secrets no error repeats."""

    def __init__(self, redactor: Redactor, clock: Clock) -> None:
        self.redactor = redactor
        self._clock = clock

    def displayable(self, text: str) -> str:
        """Return text of a response fit for display: shortened, printable, without the client's secrets."""
        return self.redactor.clean(text, MESSAGE_CHARACTERS)

    def error(self, operation: ApiOperation[Any], answer: ApiResponse) -> ApiError | None:
        """Return the error of a response, None for a success. An unlisted type is UnexpectedResponse."""
        if 200 <= answer.status < 300:
            return None
        wait_seconds = retry_after_seconds(answer.retry_after, self._clock.now())
        body, problem = _parse(answer, ErrorBody.from_json)
        kind = _BY_TYPE.get(body.type) if body else None
        if body is None or kind is None:
            # Not followed: the request would carry the tokens to an address that is not configured.
            if 300 <= answer.status < 400:
                problem = "it leads to another address, where tokens are not taken; check the base address"
            problem = problem or "its error is of a type that is not listed"
            return self._unexpected(operation, answer, problem, wait_seconds)
        # The code is more specific than the type; codes that are not listed keep the type's class.
        if kind is errors.InvalidRequest:
            kind = _BY_CODE.get(body.code, kind)
        return kind(
            operation.name,
            status=answer.status,
            type=str(body.type),
            code=self.displayable(body.code),
            message=self.displayable(body.message),
            param=None if body.param is None else self.displayable(body.param),
            params=[
                {"param": self.displayable(each.param), "message": self.displayable(each.message)}
                for each in (body.params or ())[:_MOST_PARAMS]
            ],
            retry_after_seconds=wait_seconds,
        )

    def resource(self, operation: ApiOperation[R], answer: ApiResponse) -> R:
        """Return the body of a success as the operation's model. Raises UnexpectedResponse.

        A body that the specification does not show may be empty.
        """
        if operation.response is Resource and not answer.body.strip():
            return operation.response.model_construct()
        return self._parsed(operation, answer, operation.response.from_json)

    def json(self, operation: ApiOperation[Any], answer: ApiResponse) -> object:
        """Return the decoded JSON of a success, None for an empty body. Raises UnexpectedResponse."""
        return self._parsed(operation, answer, strict_json.loads) if answer.body.strip() else None

    def _parsed(self, operation: ApiOperation[Any], answer: ApiResponse, parse: Callable[[bytes], T]) -> T:
        found, problem = _parse(answer, parse)
        if problem:
            raise self._unexpected(operation, answer, problem)
        return cast("T", found)

    def _unexpected(
        self,
        operation: ApiOperation[Any],
        answer: ApiResponse,
        problem: str,
        wait_seconds: float | None = None,
    ) -> UnexpectedResponse:
        """Return the error for a response that is not one of the specification."""
        # The response to a login holds the token; if it cannot be parsed, any part of it may be the token.
        hidden = operation.path == "/login" and answer.status < 300
        text = "" if hidden else answer.body.decode("utf-8", "replace")
        return UnexpectedResponse(
            operation.name,
            self.displayable(problem),
            status=answer.status,
            excerpt=self.redactor.clean(text, _EXCERPT_CHARACTERS),
            retry_after_seconds=wait_seconds,
        )


def _parse(answer: ApiResponse, parse: Callable[[bytes], T]) -> tuple[T | None, str]:
    """Return what `parse` makes of the body, or the reason why it makes nothing of it.

    Separate from its callers, so that no local variable of a raising frame holds the body's values.
    """
    kind = answer.content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return None, "its content type is not application/json" if kind else "it is not JSON"
    try:
        return parse(answer.body), ""
    except (errors.InvalidJSON, errors.ResourceError) as error:
        wrong = describe_details(getattr(error, "details", ())[:5])
        return None, f"{error} ({wrong})" if wrong else str(error)
