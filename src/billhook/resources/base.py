"""What all API objects share: the registry, their forms in requests and responses, lists, the body of errors.

Source: spec, "Endpoints"; "Errors".
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, StrictBool, StrictStr
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from billhook.errors import InvalidJSON, InvalidResource
from billhook.fields import WireModel, strict_json
from billhook.fields.model import optional, read, require_object
from billhook.fields.strict_json import datetime_text, dumps, loads
from billhook.fields.types import ExactDecimal, ListedWords, MaybeListOf, OpenEnum, UtcDatetime


@dataclass(frozen=True)
class Access:
    """Marks a field as read-only or write-only, in its `Annotated` and in its JSON schema."""

    keyword: str

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), self.keyword: True}


READ_ONLY = Access("readOnly")
"""Set by the service: in its responses only."""

WRITE_ONLY = Access("writeOnly")
"""Set by its users: in requests, and a response need not have it."""

# What only the service sets, where it may be absent.
ReadText: TypeAlias = Annotated[StrictStr | None, READ_ONLY]
ReadNumber: TypeAlias = Annotated[ExactDecimal | None, READ_ONLY]
CreatedAt: TypeAlias = Annotated[
    UtcDatetime, READ_ONLY, Field(description="Creation time.", examples=["2026-01-15T09:30:00Z"])
]
_registered: dict[str, type[Resource]] = {}


class Resource(WireModel):
    """An object that goes to the service or comes from it, or a part of one.

    Constructing one raises pydantic's ValidationError where a value is not of its field's type, and
    RuleBroken where a request breaks a rule that the specification states.

    Source: spec, "Resources and their fields" and "Endpoints".
    """

    def __init_subclass__(cls, *, register: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # `register` is for the hook below, which sees the finished class

    @classmethod
    def __pydantic_init_subclass__(cls, *, register: bool = True, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if register:
            if cls.__name__ in _registered:
                raise TypeError(f"there is a resource {cls.__name__} already: choose another class name")
            _registered[cls.__name__] = cls

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """Read `body`, by the wire's spelling; `cls.from_json(it.to_json()) == it`.

        Raises InvalidResource, which repeats nothing of the body, and RuleBroken.
        """
        try:
            data = strict_json.loads(body)
        except InvalidJSON as error:
            raise InvalidResource(str(error)) from None
        return cls.from_wire(data)

    @classmethod
    def from_wire(cls, data: object) -> Self:
        """Read `data`, plain values as `strict_json.loads` gives them. Raises as `from_json` does."""
        return read(cls, require_object(data, InvalidResource), InvalidResource)

    def to_json(self) -> bytes:
        """All that was given, in camelCase; what never was is left out. Numbers keep their digits.

        Extra values that have no JSON form raise TypeError or ValueError.
        """
        return strict_json.dumps(self.model_dump(by_alias=True, exclude_unset=True))

    def to_request(self) -> bytes:
        """As `to_json`, without the fields that are read-only: the body of a request."""
        return self._to_json_without(READ_ONLY)

    def to_response(self) -> bytes:
        """As `to_json`, without the fields that are write-only: the body of a response."""
        return self._to_json_without(WRITE_ONLY)

    def _to_json_without(self, access: Access) -> bytes:
        hidden = _fields_with(access, self)
        return strict_json.dumps(self.model_dump(by_alias=True, exclude_unset=True, exclude=hidden))


def _fields_with(access: Access, value: object) -> dict[Any, Any]:
    """Return the fields of this access in `value` and its parts, as `model_dump(exclude=...)` takes them."""
    found: dict[Any, Any] = {}
    parts: dict[Any, object] = {}
    if isinstance(value, Resource):
        marked = {name for name, field in type(value).model_fields.items() if access in field.metadata}
        found = dict.fromkeys(marked, True)
        parts = {name: part for name, part in value.__dict__.items() if name not in marked}
    elif isinstance(value, dict):
        parts = value
    elif isinstance(value, list):
        parts = dict(enumerate(value))
    for name, part in parts.items():
        if inner := _fields_with(access, part):
            found[name] = inner
    return found


class StoredResource(Resource, register=False):
    """An object stored by the service. Source: spec, "Resources and their fields", the conventions."""

    id: Annotated[StrictStr, READ_ONLY] = Field(description="Id assigned by the service.")
    created_at: CreatedAt
    updated_at: Annotated[UtcDatetime, READ_ONLY] = Field(
        description="Time of the last change.", examples=["2026-01-15T09:31:00Z"]
    )


RESOURCES: Mapping[str, type[Resource]] = MappingProxyType(_registered)
"""Every model of this package by its name; read-only, filled by the classes themselves."""


class ErrorType(StrEnum):
    """The classes of errors that are listed."""

    INVALID_REQUEST_ERROR = "invalid_request_error"
    AUTHENTICATION_ERROR = "authentication_error"
    RATE_LIMIT_ERROR = "rate_limit_error"
    API_ERROR = "api_error"


ErrorTypeWord: TypeAlias = Annotated[
    ErrorType | Literal["invalid_request_error", "authentication_error", "rate_limit_error", "api_error"],
    ListedWords(ErrorType),
]


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

    param: StrictStr = Field(description="Name of the parameter.", examples=["startDate"])
    message: StrictStr = Field(description="Reason why the parameter is invalid.", examples=["is required"])


class ErrorBody(Resource):
    """The body of every error.

    Source: spec, "Errors".
    """

    type: ErrorTypeWord = Field(
        description="Class: one of invalid_request, authentication, rate_limit and api, or another.",
        examples=["invalid_request_error"],
    )
    code: Annotated[StrictStr, AfterValidator(OpenEnum(ErrorCode))] = Field(
        description="Error code, for programs.", examples=["resource_not_found"]
    )
    message: StrictStr = Field(
        description="Error message, for people.", examples=["there is no such customer"]
    )
    param: StrictStr | None = optional("Name of the invalid parameter.", "customerId")
    params: MaybeListOf[WrongParam] = optional("Invalid parameters, each with the reason.")


def _read_text(value: object) -> object:
    """In a URL all is text: `10` there is the number 10."""
    if isinstance(value, str):
        with contextlib.suppress(InvalidJSON):
            return loads(value.encode("utf-8", "replace"))
    return value


class PageQuery(Resource):
    """Which page of a list is wanted: the parameters of the URL.

    Source: spec, "Endpoints", the pagination shape.
    """

    limit: Annotated[ExactDecimal | None, BeforeValidator(_read_text)] = optional(
        "Maximum number of items on the page.", 100
    )
    cursor: StrictStr | None = optional(
        "Cursor of the page: nextCursor of the previous one; empty for the first."
    )

    def to_query(self) -> dict[str, str]:
        """Return the parameters by the wire's names, as text; without those not given, or None."""
        given = self.model_dump(by_alias=True, exclude_none=True)
        return {name: _as_text(value) for name, value in given.items()}


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return datetime_text(value) if isinstance(value, datetime) else dumps(value).decode()


class Page(Resource, register=False):
    """One page of a list, and where the next begins."""

    has_more: StrictBool = Field(description="Whether there is another page.", examples=[False])
    next_cursor: StrictStr | None = optional("Cursor of the next page; null or absent on the last page.")


class CountedPage(Page, register=False):
    """One page of a list, with the number of items on all pages."""

    total: ExactDecimal = Field(description="Number of items on all pages.", examples=[1])
