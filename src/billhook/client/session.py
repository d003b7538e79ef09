"""Session: one API call with authentication, retries where they are safe, and a parsed response.

The access token is fetched at first use, once for all threads, and renewed before it expires. Source: spec,
"Authentication".
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from pydantic import SecretStr

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
from billhook.errors import (
    ApiError,
    AuthenticationFailed,
    InvalidJSON,
    ServiceUnavailable,
    UnexpectedResponse,
)
from billhook.fields import strict_json
from billhook.fields.model import fits_header
from billhook.resources import LoginRequest, LoginResponse
from billhook.resources.base import Resource

__all__ = ["LOGIN", "Session", "TokenProvider", "access_token"]

LOGIN = ApiOperation("POST", "/login", repeatable=True)
LIFETIME = timedelta(hours=1)
# A token that expires between the check and the service would cost a second login and request.
_MARGIN = timedelta(seconds=60)
R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token; use it until `renew_at`, which is shortly before `ends_at`."""

    token: SecretStr
    ends_at: datetime
    renew_at: datetime


def access_token(token: SecretStr, lifetime_seconds: Decimal | None, now: datetime) -> AccessToken:
    """Return the token with its expiry: one hour, or earlier if the login response or the JWT says so.

    If the JWT has expired by this machine's clock, one of the two clocks is wrong. Then the hour counts,
    and a 401 of the service may end it earlier.
    """
    ends = [now + LIFETIME]
    if lifetime_seconds is not None and 1 <= lifetime_seconds < LIFETIME.total_seconds():
        ends.append(now + timedelta(seconds=float(lifetime_seconds)))
    jwt_end = _jwt_end(token.get_secret_value())
    if jwt_end is not None and jwt_end >= now + timedelta(seconds=1):
        ends.append(jwt_end)
    ends_at = min(ends)
    return AccessToken(token, ends_at, ends_at - min(_MARGIN, (ends_at - now) / 10))


def _jwt_end(token: str) -> datetime | None:
    """Return the `exp` of a JWT. It is not verified: only the service has to trust the token."""
    parts = token.split(".")
    # Any other token is valid as well: the specification does not say that it is a JWT.
    if len(parts) != 3:
        return None
    try:
        claims = strict_json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        end = claims.get("exp") if isinstance(claims, dict) else None
        if isinstance(end, bool) or not isinstance(end, int | Decimal):
            return None
        return datetime.fromtimestamp(float(end), UTC)
    except (InvalidJSON, binascii.Error, ValueError, OverflowError, OSError):
        return None


class TokenProvider:
    """The token of one client. Threads that need one at the same time wait for the same login."""

    def __init__(self, fetch: Callable[[CallDeadline], AccessToken], clock: Clock) -> None:
        """`fetch` does POST /login; it raises ApiError, to every thread that waited for it."""
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._token: AccessToken | None = None
        self._pending: Future[AccessToken | None] | None = None

    @property
    def current(self) -> AccessToken | None:
        """The last token that was fetched, expired or not."""
        with self._lock:
            return self._token

    def valid_token(self, deadline: CallDeadline) -> AccessToken:
        """Return a token that is valid now; fetch one if there is none."""
        token = self.current
        if token is not None and self._clock.now() < token.renew_at:
            return token
        return self.renew(token, deadline)

    def renew(self, old: AccessToken | None, deadline: CallDeadline) -> AccessToken:
        """Return a token other than `old`, which was rejected or expires, perhaps from another thread."""
        while True:
            with self._lock:
                if self._token is not None and self._token is not old:
                    return self._token
                pending, first = self._pending, self._pending is None
                if pending is None:
                    pending = self._pending = Future()
            # Outside the lock: threads with a valid token must not wait for the login.
            if first:
                return self._fetch_once(pending, deadline)
            try:
                token = pending.result(deadline.remaining_seconds)
            except TimeoutError:
                break
            if token is not None:
                return token
        raise ServiceUnavailable(LOGIN.name, "the login of another thread takes too long", sent=True)

    def _fetch_once(self, pending: Future[AccessToken | None], deadline: CallDeadline) -> AccessToken:
        """Fetch a token for all waiting threads; if only this thread's time ran out, another one tries."""
        try:
            token = self._fetch(deadline)
        except BaseException as error:
            with self._lock:
                self._pending = None
            # The deadline is this thread's: waiting threads may have time for an attempt of their own.
            if isinstance(error, ApiError) and deadline.remaining_seconds:
                pending.set_exception(error)
            else:
                pending.set_result(None)
            raise
        with self._lock:
            self._token, self._pending = token, None
        pending.set_result(token)
        return token


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
