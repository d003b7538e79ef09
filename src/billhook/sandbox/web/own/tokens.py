"""API tokens, as the service's dashboard makes them. Source: spec, "Authentication", rules 2 and 3."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources import Resource
from billhook.sandbox import access
from billhook.sandbox.refusals import not_found
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import Text

__all__ = ["GROUP"]

GROUP = Group("_sandbox/tokens", prefix="/_sandbox/tokens")


class NewToken(Resource, register=False):
    """An API token. It is told this once."""

    refresh_token: Annotated[Text, Field(description="What POST /login takes as refreshToken.", repr=False)]


@GROUP.operation("POST", "", gives=NewToken)
def rotate(call: Call[None]) -> NewToken:
    """Make an API token, and revoke the one there is: it logs in no more.

    Access tokens that it gave are good until their hour is over.
    """
    token = access.rotate(call.tx)
    call.sandbox.api_token = token
    return NewToken(refresh_token=token)


@GROUP.operation("DELETE", "", errors=(404,))
def revoke(call: Call[None]) -> None:
    """Revoke the API token there is. A sandbox that is started without any makes another."""
    if not access.revoke(call.tx):
        raise not_found("API token")
    call.sandbox.api_token = None
