"""Logging in. Source: spec, "Endpoints", Auth."""

from __future__ import annotations

from decimal import Decimal

from billhook.resources import LoginRequest, LoginResponse
from billhook.sandbox.access import ACCESS_SECONDS, access_token, is_active
from billhook.sandbox.limits import LOGIN_BYTES
from billhook.sandbox.refusals import not_authenticated
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.strict_json import moment_text

__all__ = ["GROUP"]

GROUP = Group("auth")


@GROUP.operation(
    "POST", "/login", takes=LoginRequest, gives=LoginResponse, open=True, reads_bytes=LOGIN_BYTES
)
def login(call: Call[LoginRequest]) -> LoginResponse:
    """Exchange the API token for an access token that is good for one hour."""
    if not is_active(call.tx, call.given.refresh_token):
        raise not_authenticated(
            "the refreshToken is not the API token that is active: it is another, or was revoked"
        )
    token, ends_at = access_token(call.sandbox.client_id, call.sandbox.jwt_key, call.tx.now)
    return LoginResponse(
        access_token=token, expires_in=Decimal(ACCESS_SECONDS), expires_at=moment_text(ends_at)
    )
