"""Session: one API call with authentication, retries where they are safe, and a parsed response.

The access token is fetched at first use, once for all threads, and renewed before it expires. Source: spec,
"Authentication".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import SecretBytes, SecretStr

from billhook.client.operation import ApiOperation, custom_operation
from billhook.client.responses import ApiResponse, ResponseParser
from billhook.client.retries import CallDeadline, RetryPolicy, may_repeat
from billhook.client.tokens import LOGIN, AccessToken, TokenProvider, access_token
from billhook.client.transport import ApiCall, Transport
from billhook.clock import Clock
from billhook.errors import ApiError, AuthenticationFailed, UnexpectedResponse
from billhook.logs import fields
from billhook.resources import Resource
from billhook.wire.model import fits_header

R = TypeVar("R", bound=Resource)
Body = Resource | Mapping[str, object]

logger = logging.getLogger("billhook.client")


@dataclass(eq=False, repr=False)
class Session:
    """Makes the calls of all operation groups. Safe for any number of threads."""

    transport: Transport
    parser: ResponseParser
    retries: RetryPolicy
    clock: Clock
    sleep: Callable[[float], object]
    refresh_token: SecretStr

    def __post_init__(self) -> None:
        self._tokens = TokenProvider(self._log_in, self.clock)

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
        call = ApiCall(operation, operation.address(values), self._deadline(), query, _hidden(raw))
        return self.parser.resource(operation, self._send(call, on_retry))

    def custom(self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None) -> object:
        """Call a path without an operation; return the decoded JSON of the response, None if it is empty."""
        operation, address = custom_operation(method, path)
        call = ApiCall(operation, address, self._deadline(), query, _hidden(body))
        return self.parser.json(operation, self._send(call))

    def log_in(self) -> datetime:
        """Fetch a new access token now; returns when it ends."""
        return self._tokens.new_token(self._deadline()).ends_at

    def _deadline(self) -> CallDeadline:
        return CallDeadline(self.clock, self.retries.total_seconds)

    def _send(self, call: ApiCall, on_retry: Callable[[ApiError], object] | None = None) -> ApiResponse:
        """Attempt a call until it succeeds; raise the last error if it does not.

        The errors of an attempt are values, because an exception in flight would keep its frames.
        """
        number = 0
        while True:
            number += 1
            result = self._attempt(call)
            if not isinstance(result, ApiError):
                return result
            wait_seconds = self.retries.wait_seconds(number, result.retry_after_seconds)
            # Waiting without time for another attempt would only delay the error.
            in_time = wait_seconds < call.deadline.remaining_seconds
            if number >= self.retries.attempts or not may_repeat(result, call.operation) or not in_time:
                raise result
            if on_retry is not None:
                on_retry(result)
            extra = fields(attempt=number + 1, cause=result)
            logger.info("%s; attempt %d in %.1f s", result, number + 1, wait_seconds, extra=extra)
            self.sleep(wait_seconds)

    def _attempt(self, call: ApiCall) -> ApiResponse | ApiError:
        """Send a request with the access token; a login has none, and makes its own attempts."""
        if call.operation is LOGIN:
            return self.transport.exchange(call, None)
        token = self._tokens.valid_token(call.deadline)
        result = self.transport.exchange(call, token.token)
        # Tokens may end early: after a rotation of the API token, or when the service restarts. A second
        # request is safe for any operation, because one whose token was refused had no effect.
        if isinstance(result, AuthenticationFailed) or getattr(result, "status", 0) == 401:
            result = self.transport.exchange(call, self._tokens.renew(token, call.deadline).token)
        return result

    def _log_in(self, deadline: CallDeadline) -> AccessToken:
        body = SecretBytes(LOGIN.encoded({"refresh_token": self.refresh_token.get_secret_value()}))
        granted = self.parser.resource(LOGIN, self._send(ApiCall(LOGIN, LOGIN.path, deadline, None, body)))
        token = SecretStr(granted.access_token)
        # Learned before anything can fail: a later error may quote the response.
        self.parser.redactor.learn(token)
        if not fits_header(token.get_secret_value()):
            problem = "its access token cannot be sent in a header"
            raise UnexpectedResponse(LOGIN.name, problem, status=200, excerpt="")
        return access_token(token, granted.expires_in, self.clock.now())


def _hidden(body: bytes | None) -> SecretBytes | None:
    return None if body is None else SecretBytes(body)
