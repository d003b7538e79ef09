"""What the service answers when it does not do what was asked. Source: spec, "Errors"."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from billhook.resources.base import Resource
from billhook.wire.fields import MaybeListOf, Text, recognised

__all__ = ["ErrorBody", "ErrorCode", "ErrorType", "WrongParam"]


class ErrorType(StrEnum):
    """The classes of errors that are listed."""

    INVALID_REQUEST_ERROR = "invalid_request_error"
    AUTHENTICATION_ERROR = "authentication_error"
    RATE_LIMIT_ERROR = "rate_limit_error"
    API_ERROR = "api_error"


class ErrorCode(StrEnum):
    """The codes that are listed; a failed validation has others."""

    RESOURCE_NOT_FOUND = "resource_not_found"
    REQUEST_TOO_LARGE = "request_too_large"
    AUTHENTICATION_FAILED = "authentication_failed"
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"
    INTERNAL_ERROR = "internal_error"


class WrongParam(Resource):
    """A parameter that is wrong, and why.

    Source: spec, "Errors".
    """

    param: Annotated[Text, Field(description="The parameter.", examples=["startDate"])]
    message: Annotated[Text, Field(description="What is wrong with it.", examples=["is required"])]


class ErrorBody(Resource):
    """The body of every error.

    Source: spec, "Errors".
    """

    type: Annotated[
        Text,
        AfterValidator(recognised(ErrorType)),
        Field(
            description="Class: one of invalid_request, authentication, rate_limit and api, or another.",
            examples=["invalid_request_error"],
        ),
    ]
    code: Annotated[
        Text,
        AfterValidator(recognised(ErrorCode)),
        Field(description="What went wrong, for programs.", examples=["resource_not_found"]),
    ]
    message: Annotated[
        Text, Field(description="What went wrong, for people.", examples=["there is no such customer"])
    ]
    param: Annotated[
        Text | None, Field(description="The parameter that is wrong.", examples=["customerId"])
    ] = None
    params: Annotated[MaybeListOf[WrongParam], Field(description="The parameters that are wrong.")] = None
