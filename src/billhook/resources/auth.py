"""Logging in. Source: spec, "Endpoints", Auth; "Authentication"."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from billhook.resources.base import WRITE_ONLY, Resource
from billhook.wire.fields import Number, Text

__all__ = ["LoginRequest", "LoginResponse"]


class _Tokens(Resource, register=False):
    """What no text may show: neither the tokens nor whatever else came with them."""

    model_config = ConfigDict(hide_input_in_errors=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return [(name, value) for name, value in super().__repr_args__() if name in type(self).model_fields]


class LoginRequest(_Tokens):
    """The request of POST /login. Its token is in no `repr` and in no error.

    Source: spec, "Endpoints", POST /login.
    """

    refresh_token: Annotated[
        Text, WRITE_ONLY, Field(description="The long-lived API token, made in the dashboard.", repr=False)
    ]


class LoginResponse(_Tokens):
    """The response of POST /login. Its token is in no `repr` and in no error.

    Source: spec, "Endpoints", POST /login.
    """

    access_token: Annotated[
        Text, Field(description="For the header Authorization: Bearer; lives for an hour.", repr=False)
    ]
    expires_in: Annotated[
        Number,
        Field(description="How long the token lives; the unit is not stated.", examples=[Decimal(3600)]),
    ]
    # A text, as the specification has it: a login must not fail for the form of a field nobody needs.
    expires_at: Annotated[
        Text,
        Field(
            description="When the token expires, in whatever form the service writes it.",
            examples=["2026-01-15T10:30:00Z"],
        ),
    ]
