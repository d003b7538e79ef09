"""Login. Source: spec, "Endpoints", Auth."""

from __future__ import annotations

from decimal import Decimal

from billhook.resources import LoginRequest, LoginResponse
from billhook.sandbox.errors import not_authenticated
from billhook.sandbox.limits import MAX_LOGIN_BYTES
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.tokens import ACCESS_SECONDS, is_active
from billhook.wire.strict_json import datetime_text

__all__ = ["AUTH_GROUP"]

AUTH_GROUP = OperationGroup("auth")


@AUTH_GROUP.operation(
    "POST", "/login", takes=LoginRequest, gives=LoginResponse, open=True, reads_bytes=MAX_LOGIN_BYTES
)
def login(call: Call[LoginRequest]) -> LoginResponse:
    """Exchange the API token for an access token that is valid for one hour."""
    if not is_active(call.tx, call.request.refresh_token):
        raise not_authenticated(
            "the refreshToken is not the API token that is active: it is another, or was revoked"
        )
    # The sandbox's time: a moved clock expires access tokens, too.
    token, ends_at = call.services.issue_access_token(call.tx.now)
    return LoginResponse(
        access_token=token, expires_in=Decimal(ACCESS_SECONDS), expires_at=datetime_text(ends_at)
    )
