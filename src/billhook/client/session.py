"""Session: one API call with authentication, retries where they are safe, and a parsed response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from pydantic import SecretStr

from billhook.client.auth import LOGIN, AccessToken, TokenProvider, access_token
from billhook.client.operation import ApiOperation, custom_operation
from billhook.client.responses import (
    MESSAGE_CHARACTERS,
    parse_error,
    parse_json,
    parse_object,
    parse_response,
)
from billhook.client.retries import CallDeadline, Retrier
from billhook.client.transport import ApiResponse, Redactor, Transport
from billhook.clock import Clock
from billhook.errors import ApiError, AuthenticationFailed, UnexpectedResponse
from billhook.resources import LoginRequest, LoginResponse
from billhook.resources.base import Resource
from billhook.wire.model import fits_header

__all__ = ["Session"]

R = TypeVar("R", bound=Resource)


class Session:
    """Makes the calls of all operation groups. Safe for any number of threads."""

    def __init__(
        self,
        transport: Transport,
        retrier: Retrier,
        redactor: Redactor,
        clock: Clock,
        refresh_token: SecretStr,
    ) -> None:
        self._transport = transport
        self._retrier = retrier
        self._redactor = redactor
        self._clock = clock
        self._refresh_token = refresh_token
        self._tokens = TokenProvider(self._fetch_token, clock)

    def call(
        self,
        operation: ApiOperation,
        model: type[R],
        *values: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> R:
        """Call `operation`, with `values` for its path's parameters, and parse the response as `model`.

        Raises ApiError; ValueError for a value that cannot be in a path.
        """
        answer = self._execute(operation, values, query, body)
        return parse_response(operation, answer, model, self._redactor)

    def call_untyped(self, operation: ApiOperation, body: bytes) -> dict[str, Any]:
        """Call an operation with an unspecified response; return it as plain values, {} if it is empty."""
        return parse_object(operation, self._execute(operation, (), None, body), self._redactor)

    def custom(self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None) -> object:
        """Call a path without an operation; return the decoded JSON of the response, None if it is empty."""
        operation, address = custom_operation(method, path)
        return parse_json(operation, self._send(operation, address, query, body), self._redactor)

    def displayable(self, text: str) -> str:
        """Return text of a response fit for display: shortened, printable, without the client's secrets."""
        return self._redactor.clean(text, MESSAGE_CHARACTERS)

    def log_in(self) -> datetime:
        """Fetch a new access token now; returns when it ends."""
        deadline = self._retrier.deadline()
        return self._tokens.renew(self._tokens.current, deadline).ends_at

    def _execute(
        self,
        operation: ApiOperation,
        values: tuple[str, ...],
        query: Mapping[str, str] | None,
        body: bytes | None,
    ) -> ApiResponse:
        return self._send(operation, operation.address(values), query, body)

    def _send(
        self, operation: ApiOperation, address: str, query: Mapping[str, str] | None, body: bytes | None
    ) -> ApiResponse:
        # One deadline for the call: the login and each attempt share it.
        deadline = self._retrier.deadline()
        return self._retrier.run(
            operation,
            lambda: self._authenticated(
                operation,
                lambda bearer: self._attempt(operation, address, query or {}, body, bearer, deadline),
                deadline,
            ),
            deadline,
        )

    def _authenticated(
        self,
        operation: ApiOperation,
        attempt: Callable[[SecretStr], ApiResponse | ApiError],
        deadline: CallDeadline,
    ) -> ApiResponse:
        """Make one attempt, and a second one with a new token if the service rejects the current one.

        This is safe for any operation: a request whose token was rejected had no effect.
        """
        grant = self._tokens.valid_token(deadline)
        result = attempt(grant.token)
        # Tokens may end early: after a rotation of the API token, or when the service restarts.
        if _is_refused(result):
            result = attempt(self._tokens.renew(grant, deadline).token)
        if isinstance(result, ApiError):
            raise result
        return result

    def _attempt(
        self,
        operation: ApiOperation,
        address: str,
        query: Mapping[str, str],
        body: bytes | None,
        bearer: SecretStr | None,
        deadline: CallDeadline,
    ) -> ApiResponse | ApiError:
        request = self._transport.request(operation, address, query, body, bearer)
        answer = self._transport.exchange(operation, request, deadline)
        return parse_error(operation, answer, self._redactor, self._clock.now()) or answer

    def _fetch_token(self, deadline: CallDeadline) -> AccessToken:
        answer = self._retrier.run(LOGIN, lambda: self._log_in_once(deadline), deadline)
        granted = parse_response(LOGIN, answer, LoginResponse, self._redactor)
        token = SecretStr(granted.access_token)
        # Learned before anything can fail: a later error may quote the response.
        self._redactor.learn(token)
        del answer  # its body is the token
        if not fits_header(token.get_secret_value()):
            problem = "its access token cannot be sent in a header"
            raise UnexpectedResponse(LOGIN.name, problem, status=200, excerpt="")
        return access_token(token, granted.expires_in, self._clock.now())

    def _log_in_once(self, deadline: CallDeadline) -> ApiResponse:
        body = LoginRequest(refresh_token=self._refresh_token.get_secret_value()).to_request()
        request = self._transport.request(LOGIN, LOGIN.path, {}, body, None)
        del body
        answer = self._transport.exchange(LOGIN, request, deadline)
        error = parse_error(LOGIN, answer, self._redactor, self._clock.now())
        if error is not None:
            raise error
        return answer


def _is_refused(result: ApiResponse | ApiError) -> bool:
    """Return True if the access token was rejected. Source: spec, "Authentication", rule 4."""
    return isinstance(result, AuthenticationFailed) or (
        isinstance(result, UnexpectedResponse) and result.status == 401
    )
