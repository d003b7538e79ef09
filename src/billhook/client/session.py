"""Session: one API call with authentication, retries where they are safe, and a parsed response.

The access token is fetched at first use, once for all threads, and renewed before it expires. Source: spec,
"Authentication".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from pydantic import SecretBytes, SecretStr

from billhook.basics.printable import fits_header
from billhook.client.operation import ApiOperation, custom_operation
from billhook.client.responses import ApiResponse, ResponseParser
from billhook.client.retries import CallDeadline, RetryPolicy, may_be_done, may_repeat
from billhook.client.transport import ApiCall, Transport, logger
from billhook.clock import Clock
from billhook.errors import (
    ApiError,
    AuthenticationFailed,
    ConfigError,
    ServiceUnavailable,
    UnexpectedResponse,
)
from billhook.logs import fields
from billhook.resources import LoginRequest, LoginResponse, Resource

R = TypeVar("R", bound=Resource)

LOGIN = ApiOperation("POST", "/login", LoginResponse, LoginRequest, idempotent=True)
LIFETIME = timedelta(hours=1)
# A token that expires on its way to the service would cost a second login and a second request.
_MARGIN = timedelta(seconds=60)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token; use it until `renew_at`, which is shortly before `ends_at`."""

    token: SecretStr
    ends_at: datetime
    renew_at: datetime


def access_token(token: SecretStr, lifetime_seconds: Decimal | None, now: datetime) -> AccessToken:
    """Return the token with its expiry: one hour, or earlier if the login response says so.

    A 401 of the service may end it earlier still. Source: spec, "Authentication".
    """
    lifetime = LIFETIME
    if lifetime_seconds is not None and 1 <= lifetime_seconds < LIFETIME.total_seconds():
        lifetime = timedelta(seconds=float(lifetime_seconds))
    return AccessToken(token, now + lifetime, now + lifetime - min(_MARGIN, lifetime / 10))


class TokenProvider:
    """Keeps the token of one client; threads that need one at the same time wait for the same login.

    Source: spec, "Authentication".
    """

    def __init__(self, fetch: Callable[[CallDeadline], AccessToken], clock: Clock) -> None:
        """Take `fetch`, which does POST /login; its ApiError is raised in every thread that waited for it."""
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self.last: AccessToken | ApiError = AccessToken(SecretStr(""), _LONG_AGO, _LONG_AGO)

    def valid_token(self, deadline: CallDeadline) -> AccessToken:
        """Return a token that is valid now; fetch one if there is none."""
        last = self.last  # before taking the lock: threads with a valid token must not wait for a login
        if isinstance(last, AccessToken) and self._clock.now() < last.renew_at:
            return last
        return self.renew(last, deadline)

    def renew(self, old: AccessToken | ApiError, deadline: CallDeadline) -> AccessToken:
        """Return a token other than `old`, the last login's result; another thread may have fetched it."""
        last = self.last
        if isinstance(last, AccessToken) and last is not old:
            return last
        if not self._lock.acquire(timeout=deadline.remaining_seconds):
            problem = "the login of another thread takes too long"
            raise ServiceUnavailable(LOGIN.name, problem, sent=True)
        try:
            # Otherwise another thread has logged in meanwhile, or has failed to.
            if self.last is last:
                self.last = self._fetch(deadline)
            result = self.last
        except ApiError as error:
            # This is the deadline of this thread: waiting threads may have time for an attempt of their own.
            if deadline.remaining_seconds:
                self.last = error
            raise
        finally:
            self._lock.release()
        if isinstance(result, ApiError):
            raise result
        return result


@dataclass(eq=False, repr=False)
class Session:
    """Makes the calls of all operation groups. Safe for any number of threads."""

    transport: Transport
    parser: ResponseParser
    retries: RetryPolicy
    clock: Clock
    sleep: Callable[[float], object]
    timeout_seconds: float
    refresh_token: SecretStr

    def __post_init__(self) -> None:
        self._tokens = TokenProvider(self._log_in, self.clock)

    def call(
        self,
        operation: ApiOperation[R],
        *values: str,
        query: Mapping[str, str] | None = None,
        body: Resource | Mapping[str, Any] | bytes = b"",
        on_retry: Callable[[ApiError], object] | None = None,
    ) -> R:
        """Call `operation`, with `values` for its path's parameters, and parse the response.

        `body` is the request's model, a mapping with its fields, or encoded already. `on_retry` is called
        with the error of each attempt that is repeated. Raises ApiError; and before anything is sent
        ValueError for a value that cannot be in a path, RuleBroken and pydantic's ValidationError.
        """
        raw = body if isinstance(body, bytes) else operation.request.model_validate(body).to_request()
        call = ApiCall(operation, operation.address(values), self._deadline(), query, SecretBytes(raw))
        return self.parser.resource(operation, self._send(call, on_retry))

    def custom(self, method: str, path: str, query: Mapping[str, str] | None, body: bytes) -> object:
        """Call a path without an operation; return the decoded JSON of the response, None if it is empty."""
        operation, address = custom_operation(method, path)
        call = ApiCall(operation, address, self._deadline(), query, SecretBytes(body))
        return self.parser.json(operation, self._send(call))

    def log_in(self) -> datetime:
        """Fetch a new access token now; return when it ends."""
        return self._tokens.renew(self._tokens.last, self._deadline()).ends_at

    def _deadline(self) -> CallDeadline:
        return CallDeadline(self.clock, self.retries.total_seconds, self.timeout_seconds)

    def _send(self, call: ApiCall, on_retry: Callable[[ApiError], object] | None = None) -> ApiResponse:
        """Attempt a call until it succeeds; raise the last error if it does not.

        After an attempt that may have had its effect, no error says that nothing was sent. The errors of an
        attempt are values, because an exception in flight would keep its frames.
        """
        number, in_doubt, is_over = 0, False, False
        last: ApiError | None = None
        while True:
            number += 1
            try:
                result = self._attempt(call)
            except (ApiError, ConfigError):  # no login, or a client that was closed: nothing was sent
                if last is None:
                    raise
                result, is_over = last, True
            if not isinstance(result, ApiError):
                return result
            if is_over:
                raise result
            if in_doubt and isinstance(result, ServiceUnavailable):
                result = result.after_a_sent_attempt()
            last, in_doubt = result, in_doubt or may_be_done(result)
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
        """Send a request with the access token; a login has none, and makes its own attempts.

        A token that is refused is renewed once. Source: spec, "Authentication".
        """
        if call.operation is LOGIN:
            return self.transport.exchange(call, None)
        token = self._tokens.valid_token(call.deadline)
        result = self.transport.exchange(call, token.token)
        # Tokens may end early: after a rotation of the API token, or when the service restarts. A second
        # request is safe for any operation, because one whose token was refused had no effect.
        refused = isinstance(result, UnexpectedResponse) and result.status == 401
        if refused or isinstance(result, AuthenticationFailed):
            result = self.transport.exchange(call, self._tokens.renew(token, call.deadline).token)
        return result

    def _log_in(self, deadline: CallDeadline) -> AccessToken:
        # Keep them in a hidden variable only: a traceback may show variables.
        body = SecretBytes(LoginRequest(refresh_token=self.refresh_token.get_secret_value()).to_request())
        granted = self.parser.resource(LOGIN, self._send(ApiCall(LOGIN, LOGIN.path, deadline, None, body)))
        token = SecretStr(granted.access_token)
        # Add the token to the redactor before anything can fail: a later error may quote the response.
        self.parser.redactor.learn(token)
        if not fits_header(token.get_secret_value()):
            problem = "its access token cannot be sent in a header"
            raise UnexpectedResponse(LOGIN.name, problem, status=200, excerpt="")
        return access_token(token, granted.expires_in, self.clock.now())
