"""API tokens and access tokens. Source: spec, "Authentication"."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import datetime, timedelta

import jwt
from sqlalchemy import insert, select, update

from billhook.sandbox.storage import key_value
from billhook.sandbox.storage.tables.billing import api_token
from billhook.sandbox.storage.transaction import Transaction

ACCESS_SECONDS = 3600
JWT_ALGORITHM = "HS256"

_JWT_KEY = "jwt_key"
_LOGIN_KEY = "login_token"


def jwt_key(tx: Transaction) -> bytes:
    """Return the key that signs access tokens; it is generated once and stored."""
    key = key_value.get(tx.connection, _JWT_KEY)
    if key is None:
        key = secrets.token_urlsafe(32)
        key_value.put(tx.connection, _JWT_KEY, key)
    return key.encode()


def rotate(tx: Transaction, token: str | None = None) -> str:
    """Revoke the active API token and create another (or activate `token`). Only one can be active."""
    token = token or f"api_{secrets.token_urlsafe(32)}"
    # A token of the options may be an earlier one, which its digest finds.
    revoke(tx)
    known = tx.connection.execute(select(api_token.c.seq).where(api_token.c.digest == _digest(token))).first()
    if known is not None:
        tx.connection.execute(update(api_token).where(api_token.c.seq == known.seq).values(revoked_at=None))
    else:
        tx.connection.execute(insert(api_token).values(digest=_digest(token), created_at=tx.now))
    return token


def revoke(tx: Transaction) -> bool:
    """Revoke the active API token, so that it cannot log in any more; False if there is none."""
    revoked = tx.connection.execute(
        update(api_token).where(api_token.c.revoked_at.is_(None)).values(revoked_at=tx.now)
    )
    return revoked.rowcount > 0


def issue_login_token(tx: Transaction) -> str:
    """Return a token that logs a browser in to the pages, once; the one before it is good no more."""
    token = secrets.token_urlsafe(32)
    key_value.put(tx.connection, _LOGIN_KEY, _digest(token).hex())
    return token


def use_login_token(tx: Transaction, token: str) -> bool:
    """Return True if `token` is the login token, which is used up then."""
    known = key_value.get(tx.connection, _LOGIN_KEY) or ""
    is_right = hmac.compare_digest(known, _digest(token).hex())
    if is_right:
        key_value.delete(tx.connection, _LOGIN_KEY)
    return is_right


def is_active(tx: Transaction, token: str) -> bool:
    """Return True if `token` is the active API token."""
    # Looked up by its digest, so that the time of the query tells nothing about the token.
    found = tx.connection.execute(
        select(api_token.c.seq).where(api_token.c.digest == _digest(token), api_token.c.revoked_at.is_(None))
    ).first()
    return found is not None


def has_active(tx: Transaction) -> bool:
    """Return True if there is an active API token."""
    return active_serial(tx) is not None


def active_serial(tx: Transaction) -> int | None:
    """Return the serial number of the active API token, which tells nothing about it; None if none is."""
    found: int | None = tx.connection.execute(
        select(api_token.c.seq).where(api_token.c.revoked_at.is_(None))
    ).scalar()
    return found


def access_token(client_id: str, key: bytes, now: datetime) -> tuple[str, datetime]:
    """Return a JWT that is valid for an hour, and its expiry."""
    # JWT counts whole seconds.
    ends_at = now.replace(microsecond=0) + timedelta(seconds=ACCESS_SECONDS)
    claims = {"sub": client_id, "iat": int(now.timestamp()), "exp": int(ends_at.timestamp())}
    return jwt.encode(claims, key, algorithm=JWT_ALGORITHM), ends_at


def _digest(token: str) -> bytes:
    # Without salt or stretching: a random token of 256 bits cannot be guessed from its digest.
    return hashlib.sha256(token.encode()).digest()
