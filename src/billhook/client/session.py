"""Session: one API call with authentication, retries where they are safe, and a parsed response.

The access token is fetched at first use, once for all threads, and renewed before it expires. Source: spec,
"Authentication".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from pydantic import SecretStr

from billhook.client.operation import ApiOperation, custom_operation
from billhook.client.responses import ApiResponse, ResponseParser
from billhook.client.retries import CallDeadline, Retrier
from billhook.client.tokens import LOGIN, AccessToken, TokenProvider, access_token
from billhook.client.transport import Transport
from billhook.clock import Clock
from billhook.errors import ApiError, AuthenticationFailed, UnexpectedResponse
from billhook.resources import Resource
from billhook.wire.model import fits_header

R = TypeVar("R", bound=Resource)
Body = Resource | Mapping[str, Any]


class Session:
    """Makes the calls of all operation groups. Safe for any number of threads."""

    def __init__(
        self,
        transport: Transport,
        retrier: Retrier,
        parser: ResponseParser,
        clock: Clock,
        refresh_token: SecretStr,
    ) -> None:
        self._transport = transport
        self._retrier = retrier
        self._parser = parser
        self._clock = clock
        self._refresh_token = refresh_token
        self._tokens = TokenProvider(self._log_in, clock)
        self.displayable = parser.displayable

    def call(
        self,
        operation: ApiOperation[R],
        *values: str,
        query: Mapping[str, str] | None = None,
        body: Body | bytes | None = None,
        on_retry: Callable[[ApiError], object] | None = None,
    ) -> R:
        """Call `operation`, with `values` for its path's parameters, and parse the response.

        `body` is the request's model, a mapping with its fields, or encoded already. `on_retry` is called
        with the error of each attempt that is repeated. Raises ApiError; and before anything is sent
        ValueError for a value that cannot be in a path, RuleBroken and pydantic's ValidationError.
        """
        raw = body if body is None or isinstance(body, bytes) else operation.encoded(body)
        answer = self._send(operation, operation.address(values), query, raw, on_retry)
        return self._parser.resource(operation, answer)

    def custom(self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None) -> object:
        """Call a path without an operation; return the decoded JSON of the response, None if it is empty."""
        operation, address = custom_operation(method, path)
        return self._parser.json(operation, self._send(operation, address, query, body))

    def log_in(self) -> datetime:
        """Fetch a new access token now; returns when it ends."""
        return self._tokens.new_token(self._retrier.deadline()).ends_at

    def _send(
        self,
        operation: ApiOperation[Any],
        address: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        on_retry: Callable[[ApiError], object] | None = None,
    ) -> ApiResponse:
        # One deadline for the call: the login and each attempt share it.
        deadline = self._retrier.deadline()

        def attempt(token: AccessToken) -> ApiResponse | ApiError:
            request = self._transport.request(operation, address, query, body, token.token)
            return self._transport.exchange(operation, request, deadline)

        def authenticated() -> ApiResponse:
            token = self._tokens.valid_token(deadline)
            result = attempt(token)
            # Tokens may end early: after a rotation of the API token, or when the service restarts. A second
            # request is safe for any operation, because one whose token was refused had no effect.
            if _is_refused(result):
                result = attempt(self._tokens.renew(token, deadline))
            return _raised(result)

        return self._retrier.run(operation, authenticated, deadline, on_retry)

    def _log_in(self, deadline: CallDeadline) -> AccessToken:
        def attempt() -> ApiResponse:
            # The body is in no variable: a traceback may show them.
            request = self._transport.request(
                LOGIN,
                LOGIN.path,
                None,
                LOGIN.encoded({"refresh_token": self._refresh_token.get_secret_value()}),
            )
            return _raised(self._transport.exchange(LOGIN, request, deadline))

        granted = self._parser.resource(LOGIN, self._retrier.run(LOGIN, attempt, deadline))
        token = SecretStr(granted.access_token)
        # Learned before anything can fail: a later error may quote the response.
        self._parser.redactor.learn(token)
        if not fits_header(token.get_secret_value()):
            problem = "its access token cannot be sent in a header"
            raise UnexpectedResponse(LOGIN.name, problem, status=200, excerpt="")
        return access_token(token, granted.expires_in, self._clock.now())


def _raised(result: ApiResponse | ApiError) -> ApiResponse:
    if isinstance(result, ApiError):
        raise result
    return result


def _is_refused(result: ApiResponse | ApiError) -> bool:
    """Return True if the access token was rejected. Source: spec, "Authentication", rule 4."""
    return isinstance(result, AuthenticationFailed) or (
        isinstance(result, UnexpectedResponse) and result.status == 401
    )
