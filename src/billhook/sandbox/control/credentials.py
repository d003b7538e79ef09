"""API tokens and signing secrets. Source: spec, "Authentication", rules 2 and 3."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictStr

from billhook.resources import Resource
from billhook.sandbox import tokens
from billhook.sandbox.errors import invalid_request, not_found
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.webhooks import signing_secrets

__all__ = ["SECRETS_GROUP", "TOKENS_GROUP"]

TOKENS_GROUP = OperationGroup("_sandbox/tokens", prefix="/_sandbox/tokens")
SECRETS_GROUP = OperationGroup("_sandbox/secrets", prefix="/_sandbox/secrets")


class NewToken(Resource, register=False):
    """A new API token. It is shown only here."""

    # repr=False keeps the token out of logs and of pytest's output.
    refresh_token: Annotated[
        StrictStr, Field(description="What POST /login takes as refreshToken.", repr=False)
    ]


@TOKENS_GROUP.operation("POST", "", name="rotate", gives=NewToken)
def rotate_api_token(call: Call[None]) -> NewToken:
    """Create an API token and revoke the previous one, which cannot log in any more.

    Access tokens issued for the previous one stay valid until their hour is over.
    """
    token = tokens.rotate(call.tx)
    # Otherwise Sandbox.api_token would still return the revoked one.
    call.services.api_token_changed(token)
    return NewToken(refresh_token=token)


@TOKENS_GROUP.operation("DELETE", "", name="revoke", errors=(404,))
def revoke_api_token(call: Call[None]) -> None:
    """Revoke the API token. A sandbox that is started without one creates another."""
    if not tokens.revoke(call.tx):
        raise not_found("API token")
    call.services.api_token_changed(None)


class Rotation(Resource, register=False):
    """How to rotate the secret."""

    overlap: Annotated[
        StrictBool,
        Field(
            description="True to sign with the previous secret as well, until the next rotation.",
            examples=[True],
        ),
    ] = False


class Rotated(Resource, register=False):
    """The new secret. It is shown only here."""

    signing_secret: Annotated[
        StrictStr, Field(description="What receivers verify with: the secret, or the public key of a pair.")
    ]
    key_id: Annotated[StrictStr | None, Field(description="The key's id, where deliveries name it.")] = None


@SECRETS_GROUP.operation("POST", "/rotate", name="rotate", takes=Rotation, gives=Rotated)
def rotate_signing_secret(call: Call[Rotation]) -> Rotated:
    """Sign with a new secret from now on; with `overlap` also with the previous one."""
    signer = signing_secrets.current_signer(call.tx)
    # Signing with the new secret alone would break receivers that rely on the overlap.
    if call.request.overlap and not signer.can_overlap:
        raise invalid_request(
            f"a delivery signed by {signer.scheme.name} has room for one signature: give the new secret to "
            "the receivers beside the old one, and rotate without overlap",
            "overlap",
        )
    secret = signing_secrets.rotate(call.tx, overlap=call.request.overlap)
    if isinstance(secret, str):
        return Rotated(signing_secret=secret)
    # A mapping has one entry: signing needs exactly one key.
    ((key_id, text),) = secret.items()
    return Rotated(signing_secret=text, key_id=key_id)
