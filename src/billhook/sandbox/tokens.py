"""API tokens and access tokens. Source: spec, "Authentication"."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import datetime, timedelta

import jwt

from billhook.sandbox.storage.database import Transaction

ACCESS_SECONDS = 3600
JWT_ALGORITHM = "HS256"

_JWT_KEY = "jwt_key"
_ACTIVE = "api_token"
_LOGIN = "login_token"


def jwt_key(tx: Transaction) -> bytes:
    """Return the key that signs access tokens; it is generated once and stored."""
    key: str | None = tx.setting(_JWT_KEY)
    if key is None:
        key = secrets.token_urlsafe(32)
        tx.store_setting(_JWT_KEY, key)
    return key.encode()


def rotate(tx: Transaction, token: str | None = None) -> str:
    """Make `token`, or a new one, the only API token: the previous one cannot log in any more."""
    token = token or f"api_{secrets.token_urlsafe(32)}"
    tx.store_setting(_ACTIVE, _digest(token))
    return token


def issue_login_token(tx: Transaction) -> str:
    """Return a token that logs a browser in to the pages, once; it replaces the previous one."""
    token = secrets.token_urlsafe(32)
    tx.store_setting(_LOGIN, _digest(token))
    return token


def use_login_token(tx: Transaction, token: str) -> bool:
    """Return True if `token` is the login token, which is used up then."""
    is_right = _is_stored(tx, _LOGIN, token)
    if is_right:
        tx.store_setting(_LOGIN, None)
    return is_right


def is_active(tx: Transaction, token: str) -> bool:
    """Return True if `token` is the active API token."""
    return _is_stored(tx, _ACTIVE, token)


def active_mark(tx: Transaction) -> str | None:
    """Return a text that identifies the active API token without revealing it; None without a token."""
    known: str | None = tx.setting(_ACTIVE)
    return None if known is None else _digest(known)


def _is_stored(tx: Transaction, name: str, token: str) -> bool:
    return hmac.compare_digest(tx.setting(name) or "", _digest(token))


def access_token(client_id: str, key: bytes, now: datetime) -> tuple[str, datetime]:
    """Return a JWT that is valid for an hour, and its expiry."""
    # JWT counts whole seconds.
    ends_at = now.replace(microsecond=0) + timedelta(seconds=ACCESS_SECONDS)
    claims = {"sub": client_id, "iat": int(now.timestamp()), "exp": int(ends_at.timestamp())}
    return jwt.encode(claims, key, algorithm=JWT_ALGORITHM), ends_at


def _digest(token: str) -> str:
    # A copy of the database must not be enough to log in. Without salt or stretching: a random token of 256
    # bits cannot be guessed from its digest.
    return hashlib.sha256(token.encode()).hexdigest()
