"""The access token: fetched when first needed, once for all threads, and again before it ends.

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

from billhook.client.operation import Operation
from billhook.client.retries import Budget
from billhook.clock import Clock
from billhook.errors import ApiError, InvalidJSON, ServiceUnavailable
from billhook.wire import strict_json

__all__ = ["LOGIN", "Grant", "Login", "grant_of"]

LOGIN = Operation("POST", "/login", repeatable=True)

LIFETIME = timedelta(hours=1)
_MARGIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Grant:
    """An access token; to be used until `renew_at`, which is a little before `ends_at`."""

    token: SecretStr
    ends_at: datetime
    renew_at: datetime


def grant_of(token: SecretStr, lifetime_seconds: Decimal | None, now: datetime) -> Grant:
    """When a token that was just received ends: after an hour, or earlier by what the login or the JWT says.

    A token that has ended already by our clock tells that one of two clocks is wrong: then the hour counts,
    and the service's own 401 after it.
    """
    ends = [now + LIFETIME]
    if lifetime_seconds is not None and 1 <= lifetime_seconds < LIFETIME.total_seconds():
        ends.append(now + timedelta(seconds=float(lifetime_seconds)))
    told = _jwt_end(token.get_secret_value())
    if told is not None and told >= now + timedelta(seconds=1):
        ends.append(told)
    ends_at = min(ends)
    return Grant(token, ends_at, ends_at - min(_MARGIN, (ends_at - now) / 10))


def _jwt_end(token: str) -> datetime | None:
    """The `exp` of a JWT, read and not verified: it is the service that has to believe the token."""
    parts = token.split(".")
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


class Login:
    """Holds the token of one client. Threads that need one at the same time wait for the same login."""

    def __init__(self, fetch: Callable[[Budget], Grant], clock: Clock) -> None:
        """`fetch` does POST /login; it raises ApiError, to every thread that waited for it."""
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._grant: Grant | None = None
        self._flight: Future[Grant | None] | None = None

    @property
    def current(self) -> Grant | None:
        """The last one that was fetched, whether it is still good or not."""
        with self._lock:
            return self._grant

    def grant(self, budget: Budget) -> Grant:
        """One that is good for now."""
        grant = self.current
        if grant is not None and self._clock.now() < grant.renew_at:
            return grant
        return self.renewed(grant, budget)

    def renewed(self, old: Grant | None, budget: Budget) -> Grant:
        """Another than `old`, which was refused or is ending; the one that was fetched meanwhile, if any."""
        while True:
            with self._lock:
                if self._grant is not None and self._grant is not old:
                    return self._grant
                flight, first = self._flight, self._flight is None
                if flight is None:
                    flight = self._flight = Future()
            if first:
                return self._fly(flight, budget)
            try:
                grant = flight.result(budget.left_seconds)
            except TimeoutError:
                break
            if grant is not None:
                return grant
        raise ServiceUnavailable(LOGIN.name, "the login of another thread takes too long", sent=True)

    def _fly(self, flight: Future[Grant | None], budget: Budget) -> Grant:
        """Fetch one for all who wait; where only this thread failed, as its time ran out, they try next."""
        try:
            grant = self._fetch(budget)
        except BaseException as error:
            with self._lock:
                self._flight = None
            if isinstance(error, ApiError) and budget.left_seconds:
                flight.set_exception(error)
            else:
                flight.set_result(None)
            raise
        with self._lock:
            self._grant, self._flight = grant, None
        flight.set_result(grant)
        return grant
