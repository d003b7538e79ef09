"""Logging in. Source: spec, "Endpoints", Auth."""

from __future__ import annotations

from decimal import Decimal

from billhook.resources import LoginRequest, LoginResponse
from billhook.sandbox.access import ACCESS_SECONDS, access_token, is_active
from billhook.sandbox.refusals import not_authenticated
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("auth")


@GROUP.operation("POST", "/login", takes=LoginRequest, gives=LoginResponse, open=True)
def login(call: Call[LoginRequest]) -> LoginResponse:
    """Exchange the API token for an access token that is good for one hour."""
    if not is_active(call.tx, call.given.refresh_token):
        raise not_authenticated("the API token is wrong or was revoked")
    token, ends_at = access_token(call.sandbox.client_id, call.sandbox.jwt_key, call.tx.now)
    return LoginResponse(access_token=token, expires_in=Decimal(ACCESS_SECONDS), expires_at=ends_at)
