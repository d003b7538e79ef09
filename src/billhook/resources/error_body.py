"""The body of the service's errors. Source: spec, "Errors"."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, StrictStr

from billhook.resources.base import Resource
from billhook.wire.fields import MaybeListOf, open_enum

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

    param: Annotated[StrictStr, Field(description="Name of the parameter.", examples=["startDate"])]
    message: Annotated[
        StrictStr, Field(description="Reason why the parameter is invalid.", examples=["is required"])
    ]


class ErrorBody(Resource):
    """The body of every error.

    Source: spec, "Errors".
    """

    type: Annotated[
        StrictStr,
        AfterValidator(open_enum(ErrorType)),
        Field(
            description="Class: one of invalid_request, authentication, rate_limit and api, or another.",
            examples=["invalid_request_error"],
        ),
    ]
    code: Annotated[
        StrictStr,
        AfterValidator(open_enum(ErrorCode)),
        Field(description="Error code, for programs.", examples=["resource_not_found"]),
    ]
    message: Annotated[
        StrictStr, Field(description="Error message, for people.", examples=["there is no such customer"])
    ]
    param: Annotated[
        StrictStr | None, Field(description="Name of the invalid parameter.", examples=["customerId"])
    ] = None
    params: Annotated[
        MaybeListOf[WrongParam], Field(description="Invalid parameters, each with the reason.")
    ] = None
