"""The access token: fetched at first use, once for all threads, and renewed before it expires.

Source: spec, "Authentication".
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from pydantic import SecretStr

from billhook.client.operation import ApiOperation
from billhook.client.retries import CallDeadline
from billhook.clock import Clock
from billhook.errors import ApiError, InvalidJSON, ServiceUnavailable
from billhook.wire import strict_json

__all__ = ["LOGIN", "AccessToken", "TokenProvider", "access_token"]

LOGIN = ApiOperation("POST", "/login", repeatable=True)

LIFETIME = timedelta(hours=1)
# A token that expires between the check and the service would cost a second login and request.
_MARGIN = timedelta(seconds=60)


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
