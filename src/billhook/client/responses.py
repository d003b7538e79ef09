"""Parse responses into models, or into the errors they stand for. Source: spec, "Errors"."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from pydantic import SecretStr

from billhook import errors
from billhook.client.operation import AnyOperation, ApiOperation
from billhook.client.retries import retry_after_seconds
from billhook.clock import Clock
from billhook.fields import strict_json
from billhook.fields.model import describe_details
from billhook.resources import ErrorBody, ErrorCode, ErrorType, Resource

R = TypeVar("R", bound=Resource)
T = TypeVar("T")

# Bounds for error texts: a service that is broken may send pages of HTML.
_EXCERPT_CHARACTERS = 200
MESSAGE_CHARACTERS = 1_000
_MOST_PARAMS = 50

_BY_TYPE: dict[str, type[errors.ServiceError]] = {
    ErrorType.INVALID_REQUEST_ERROR: errors.InvalidRequest,
    ErrorType.AUTHENTICATION_ERROR: errors.AuthenticationFailed,
    ErrorType.RATE_LIMIT_ERROR: errors.RateLimitExceeded,
    ErrorType.API_ERROR: errors.InternalError,
}
_BY_CODE: dict[str, type[errors.ServiceError]] = {
    ErrorCode.RESOURCE_NOT_FOUND: errors.ResourceNotFound,
    ErrorCode.REQUEST_TOO_LARGE: errors.RequestTooLarge,
}
HIDDEN = "[hidden]"
_KEPT = 50
_MOST_UNSEEN = 20  # the most spaces and control characters that are read for each character shown
# Removing a shorter secret would remove parts of every text, and it is too short to be a secret.
_LEAST_CHARACTERS = 4
_LEAST_LETTERS = 8  # a word such as "wrong" may be in the text itself
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,2}")


class Redactor:
    """Removes the secrets of one client, and everything that looks like a JWT, from texts."""

    def __init__(self, *secrets: SecretStr) -> None:
        self._lasting = secrets
        self._passing: tuple[SecretStr, ...] = ()

    def learn(self, secret: SecretStr) -> None:
        """Add an access token; drop the oldest, which expired long before."""
        self._passing = (*self._passing[-_KEPT + 1 :], secret)

    def clean(self, text: str, limit: int) -> str:
        """Return `text` without secrets and control characters, cut to `limit` characters."""
        secrets = [secret.get_secret_value() for secret in (*self._lasting, *self._passing)]
        # Remove the longest first: a secret may contain another secret.
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= (_LEAST_LETTERS if secret.isalpha() else _LEAST_CHARACTERS):
                text = re.sub("".join(map(_spelling, secret)), HIDDEN, text)
        # Cut after the secrets are removed, or half a secret could remain; and before the slow part below.
        text = _JWT.sub(HIDDEN, text)[: limit * _MOST_UNSEEN]
        shown = " ".join("".join(each if each.isprintable() else " " for each in text).split())
        return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _spelling(character: str) -> str:
    """Return a pattern of a character as it is, or escaped by JSON, HTML or URLs: `/`, `\\/`, `%2F`."""
    if (character.isascii() and character.isalnum()) or character in "-._~":  # never escaped
        return re.escape(character)
    code = "".join(f"[{digit}{digit.upper()}]" for digit in f"{ord(character):02x}")
    entity = rf"&(?:#0*{ord(character)}|#[xX]0*{code}|[A-Za-z]+);"
    return rf"(?:\\?{re.escape(character)}|%{code}|\\u00{code}|{entity})"


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

    def error(self, operation: AnyOperation, answer: ApiResponse) -> errors.ApiError | None:
        """Return the error of a response, None for a success. An unlisted type is UnexpectedResponse."""
        if 200 <= answer.status < 300:
            return None
        wait_seconds = retry_after_seconds(answer.retry_after, self._clock.now())
        body, problem = _parse(answer, ErrorBody.from_json)
        kind = _BY_TYPE.get(body.type) if body else None
        if body is None or kind is None:
            # A redirect is not followed: it would send the tokens to an address that is not configured.
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
        """Return the body of a success as the operation's model. Raises errors.UnexpectedResponse.

        A body that the specification does not show may be empty.
        """
        if operation.response is Resource and not answer.body.strip():
            return operation.response.model_construct()
        return self._parsed(operation, answer, operation.response.from_json)

    def json(self, operation: AnyOperation, answer: ApiResponse) -> object:
        """Return the decoded JSON of a success, None for an empty body. Raises UnexpectedResponse."""
        return self._parsed(operation, answer, strict_json.loads) if answer.body.strip() else None

    def _parsed(self, operation: AnyOperation, answer: ApiResponse, parse: Callable[[bytes], T]) -> T:
        found, problem = _parse(answer, parse)
        if problem:
            raise self._unexpected(operation, answer, problem)
        return cast("T", found)

    def _unexpected(
        self, operation: AnyOperation, answer: ApiResponse, problem: str, wait_seconds: float | None = None
    ) -> errors.UnexpectedResponse:
        """Return the error for a response that is not one of the specification."""
        # The response to a login holds the token; if it cannot be parsed, any part of it may be the token.
        hidden = operation.path == "/login" and answer.status < 300
        text = "" if hidden else answer.body.decode("utf-8", "replace")
        return errors.UnexpectedResponse(
            operation.name,
            self.displayable(problem),
            status=answer.status,
            excerpt=self.redactor.clean(text, _EXCERPT_CHARACTERS),
            retry_after_seconds=wait_seconds,
        )


def _parse(answer: ApiResponse, parse: Callable[[bytes], T]) -> tuple[T | None, str]:
    """Return the result of `parse` for the body, or the reason why it cannot be parsed.

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
