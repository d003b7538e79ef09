"""The access token: when it expires, and one login for all threads. Source: spec, "Authentication"."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from pydantic import SecretStr

from billhook.client.operation import ApiOperation
from billhook.client.retries import CallDeadline
from billhook.clock import Clock
from billhook.errors import ApiError, InvalidJSON, ServiceUnavailable
from billhook.resources import LoginRequest, LoginResponse
from billhook.wire import strict_json

LOGIN = ApiOperation("POST", "/login", LoginResponse, LoginRequest, idempotent=True)
LIFETIME = timedelta(hours=1)
# A token that expires between the check and the service would cost a second login and request.
_MARGIN = timedelta(seconds=60)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


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
        self._last: AccessToken | ApiError = AccessToken(SecretStr(""), _LONG_AGO, _LONG_AGO)

    def valid_token(self, deadline: CallDeadline) -> AccessToken:
        """Return a token that is valid now; fetch one if there is none."""
        last = self._last  # without the lock: threads with a valid token must not wait for a login
        if isinstance(last, AccessToken) and self._clock.now() < last.renew_at:
            return last
        return self.renew(last, deadline)

    def renew(self, old: AccessToken | ApiError, deadline: CallDeadline) -> AccessToken:
        """Return a token other than `old`, the result of the last login: perhaps one from another thread."""
        last = self._last
        if isinstance(last, AccessToken) and last is not old:
            return last
        if not self._lock.acquire(timeout=deadline.remaining_seconds):
            problem = "the login of another thread takes too long"
            raise ServiceUnavailable(LOGIN.name, problem, sent=True)
        try:
            # Otherwise another thread has logged in meanwhile, or has failed to.
            if self._last is last:
                self._last = self._fetch(deadline)
            result = self._last
        except ApiError as error:
            # The deadline is this thread's: waiting threads may have time for an attempt of their own.
            if deadline.remaining_seconds:
                self._last = error
            raise
        finally:
            self._lock.release()
        if isinstance(result, ApiError):
            raise result
        return result

    def new_token(self, deadline: CallDeadline) -> AccessToken:
        """Log in, whether the current token is good or not."""
        return self.renew(self._last, deadline)
