"""API tokens and access tokens. Source: spec, "Authentication"."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

import jwt
from sqlalchemy import insert, select, update

from billhook.sandbox.storage import facts
from billhook.sandbox.storage.tables import access
from billhook.sandbox.transaction import Transaction

__all__ = [
    "ACCESS_SECONDS",
    "JWT_ALGORITHM",
    "access_token",
    "has_active",
    "is_active",
    "jwt_key",
    "revoke",
    "rotate",
]

ACCESS_SECONDS = 3600
JWT_ALGORITHM = "HS256"

_JWT_KEY = "jwt_key"


def jwt_key(tx: Transaction) -> bytes:
    """What access tokens are signed with: made at first, and kept."""
    key = facts.recall(tx.connection, _JWT_KEY)
    if key is None:
        key = secrets.token_urlsafe(32)
        facts.remember(tx.connection, _JWT_KEY, key)
    return key.encode()


def rotate(tx: Transaction, token: str | None = None) -> str:
    """Revoke the API token there is, and make another: only one can be active. It is told once."""
    token = token or f"api_{secrets.token_urlsafe(32)}"
    tokens = access.api_token
    revoke(tx)
    known = tx.connection.execute(select(tokens.c.seq).where(tokens.c.digest == _digest(token))).first()
    if known is not None:
        tx.connection.execute(update(tokens).where(tokens.c.seq == known.seq).values(revoked_at=None))
    else:
        tx.connection.execute(insert(tokens).values(digest=_digest(token), created_at=tx.now))
    return token


def revoke(tx: Transaction) -> bool:
    """Revoke the API token there is; False if there is none. It can log in no more, from now on."""
    tokens = access.api_token
    revoked = tx.connection.execute(
        update(tokens).where(tokens.c.revoked_at.is_(None)).values(revoked_at=tx.now)
    )
    return revoked.rowcount > 0


def is_active(tx: Transaction, token: str) -> bool:
    """Is `token` the API token that may log in? Looked up by its digest, so that time tells nothing."""
    tokens = access.api_token
    found = tx.connection.execute(
        select(tokens.c.seq).where(tokens.c.digest == _digest(token), tokens.c.revoked_at.is_(None))
    ).first()
    return found is not None


def has_active(tx: Transaction) -> bool:
    """Is there an API token at all?"""
    tokens = access.api_token
    return (
        tx.connection.execute(select(tokens.c.seq).where(tokens.c.revoked_at.is_(None))).first() is not None
    )


def access_token(client_id: str, key: bytes, now: datetime) -> tuple[str, datetime]:
    """A JWT that is good for an hour, and when it ends."""
    ends_at = now.replace(microsecond=0) + timedelta(seconds=ACCESS_SECONDS)
    claims = {"sub": client_id, "iat": int(now.timestamp()), "exp": int(ends_at.timestamp())}
    return jwt.encode(claims, key, algorithm=JWT_ALGORITHM), ends_at


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
