"""The signing secret: another one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources import Resource
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.sending import signing_secrets
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import Flag, Text

__all__ = ["GROUP"]

GROUP = Group("_sandbox/secrets", prefix="/_sandbox/secrets")


class Rotation(Resource, register=False):
    """How the secret is to change."""

    overlap: Annotated[
        Flag,
        Field(
            description="Is all signed with the old one as well, until the next rotation?", examples=[True]
        ),
    ] = False


class Rotated(Resource, register=False):
    """The new secret. It is told once."""

    signing_secret: Annotated[
        Text, Field(description="What receivers verify with: the secret, or the public key of a pair.")
    ]
    key_id: Annotated[Text | None, Field(description="The key's id, where deliveries name it.")] = None


@GROUP.operation("POST", "/rotate", takes=Rotation, gives=Rotated)
def rotate(call: Call[Rotation]) -> Rotated:
    """Sign with a new secret from now on, and with the one before it as well if they are to overlap."""
    signer = signing_secrets.signer(call.tx)
    if call.given.overlap and not signer.can_overlap:
        raise invalid_request(
            f"a delivery signed by {signer.scheme.name} has room for one signature: give the new secret to "
            "the receivers beside the old one, and rotate without overlap",
            "overlap",
        )
    secret = signing_secrets.rotate(call.tx, overlap=call.given.overlap)
    if isinstance(secret, str):
        return Rotated(signing_secret=secret)
    ((key_id, text),) = secret.items()
    return Rotated(signing_secret=text, key_id=key_id)
