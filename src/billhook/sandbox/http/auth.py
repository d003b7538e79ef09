"""Authentication and rate limiting of requests. Source: spec, "Authentication"; "Limits"."""

from __future__ import annotations

import hmac
import math
import time
from datetime import datetime, timedelta

import jwt
from flask import Request
from limits import RateLimitItem
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from billhook.sandbox.errors import not_authenticated, rate_limited
from billhook.sandbox.tokens import ACCESS_SECONDS, JWT_ALGORITHM

__all__ = ["Authenticator"]

_REFUSED = "the client id or the access token is missing, wrong or expired: log in again"


class Authenticator:
    """Checks client id, rate limit and access token. Its errors do not tell which of them was wrong."""

    def __init__(self, client_id: str, key: bytes, limit: RateLimitItem) -> None:
        self._client_id = client_id.encode()
        self._key = key
        self._limit = limit
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    def check_client(self, request: Request) -> None:
        """Check the header `x-api-key` and the rate of requests; 401 or 429."""
        # WSGI decodes a header's bytes as Latin-1 and joins repeated headers with a comma.
        client_id = request.headers.get("x-api-key", "").encode("latin-1", "replace")
        self._check_id(client_id)
        # One limit for all requests, since there is one client id.
        self._count("requests")

    def check_login(self, client_id: str) -> None:
        """Check the rate of attempts to log in to the pages, and the client id; 429 or 401."""
        self._count("logins")
        self._check_id(client_id.encode("utf-8", "replace"))

    def _check_id(self, client_id: bytes) -> None:
        # In constant time, and as bytes: compare_digest refuses texts that are not ASCII.
        if not hmac.compare_digest(client_id, self._client_id):
            raise not_authenticated(_REFUSED)

    def _count(self, what: str) -> None:
        if not self._limiter.hit(self._limit, what):
            reset = self._limiter.get_window_stats(self._limit, what).reset_time
            raise rate_limited(max(1, math.ceil(reset - time.time())))

    def check_access_token(self, request: Request, now: datetime) -> None:
        """Check the access token in `Authorization` at `now`, the sandbox clock's time; 401."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise not_authenticated(_REFUSED)
        try:
            # PyJWT would check the times by the machine's clock, so they are checked below.
            claims = jwt.decode(
                token.strip(),
                self._key,
                algorithms=[JWT_ALGORITHM],
                options={"require": ["exp", "sub"], "verify_exp": False, "verify_iat": False},
            )
            ends_at = float(claims["exp"])
        except (
            jwt.InvalidTokenError,
            TypeError,
            ValueError,
            OverflowError,
        ):  # such as an exp of 4,000 digits
            raise not_authenticated(_REFUSED) from None
        if claims["sub"] != self._client_id.decode():
            raise not_authenticated(_REFUSED)
        if not now.timestamp() < ends_at <= (now + timedelta(seconds=ACCESS_SECONDS)).timestamp():
            raise not_authenticated(_REFUSED)
