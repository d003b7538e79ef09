"""Field types, and the fields, enumerations and objects that events and resources share.

Source: spec, "Events", rule 2 and the table; "Resources and their fields"; "States and transitions".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    BeforeValidator,
    FailFast,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StrictBool,
    StrictStr,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from billhook.errors import InvalidJSON
from billhook.fields.strict_json import MAX_DEPTH, MAX_DIGITS, dumps, in_utc, is_bounded, loads

_ISO_8601 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


def _number(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise PydanticCustomError("number_type", "Input should be a number")
    number = Decimal(float.__repr__(value)) if isinstance(value, float) else Decimal(value)
    if not (number.is_finite() and is_bounded(number)):
        raise PydanticCustomError(
            "number_range", f"Input should be a finite number of at most {MAX_DIGITS} digits"
        )
    return number


def _integer(value: object) -> int:
    number = _number(value)
    if number != int(number):
        raise PydanticCustomError("integer_type", "Input should be an integer")
    return int(number)


def _json(value: object) -> object:
    try:
        return loads(dumps(value))
    except (TypeError, ValueError, RecursionError, InvalidJSON):
        raise PydanticCustomError(
            "json_value",
            "Input should have a form in JSON: text, finite numbers, true, false, null, "
            f"and arrays and objects of these, {MAX_DEPTH} levels deep at most",
        ) from None


def _moment(value: object) -> datetime:
    if isinstance(value, str) and _ISO_8601.fullmatch(value := value.upper()):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:  # the form is right, but there is no such day, hour or offset
            value = None
    if not isinstance(value, datetime):
        raise PydanticCustomError("moment", "Input should be an ISO 8601 date-time")
    try:
        return in_utc(value)
    except OverflowError:
        raise PydanticCustomError(
            "moment_range", "Input should be between the years 1 and 9999 in UTC"
        ) from None


class OpenEnum:
    """A validator for an open enumeration: a listed value becomes its member, any other stays a str."""

    def __init__(self, listed: type[StrEnum]) -> None:
        self.listed = {member.value: member for member in listed}

    def __call__(self, value: str) -> str:
        return self.listed.get(value, value)


@dataclass(frozen=True, slots=True)
class ListedWords:
    """Reads a text of an open enumeration, in an annotation that has the listed words alone.

    So type checkers and descriptions know the words, and what the service says in others is read as well.
    """

    listed: type[StrEnum]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            OpenEnum(self.listed), core_schema.str_schema(strict=True)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "enum": [word.value for word in self.listed]}


ExactDecimal = Annotated[Decimal, BeforeValidator(_number), WithJsonSchema({"type": "number"})]
"""A number with its digits as sent. Takes Decimal, int and float (as Python prints it); never a str or a
bool, NaN or an infinity."""

Integer = Annotated[int, BeforeValidator(_integer)]
"""An integer, from any number without a fraction: 3 or 3.0."""

PositiveInt = Annotated[int, Field(ge=1), BeforeValidator(_integer)]
"""An integer of 1 or greater. (The limit comes first, or it would be missing in the JSON schema.)"""

UtcDatetime = Annotated[datetime, BeforeValidator(_moment)]
"""An aware UTC datetime. Takes ISO 8601 text (a date alone is its midnight) and datetimes; without an offset
they are read as UTC, with another one converted. Never a Unix time."""

T = TypeVar("T")

ListOf = Annotated[list[T], FailFast()]
"""A list; validation stops at the first invalid item, so that thousands do not make a huge error."""

MaybeListOf = Annotated[list[T] | None, FailFast()]
"""The same, or None. (`ListOf[...] | None` is impossible: FailFast has no hash.)"""

JsonValue = Annotated[Any, BeforeValidator(_json)]
"""Any value that JSON can express: a float becomes a Decimal, a datetime its text."""

JsonObject = Annotated[dict[str, Any], BeforeValidator(_json)]
"""An object of any such values."""

CustomerId = Annotated[StrictStr, Field(description="Id of the customer.", examples=["cus_1042"])]
Aliases = Annotated[
    ListOf[StrictStr],
    Field(
        description="Names by which usage events are matched to the customer.", examples=[["acme", "acme-eu"]]
    ),
]
InvoiceId = Annotated[StrictStr, Field(description="Id of the invoice.", examples=["inv_3007"])]
ProductId = Annotated[StrictStr, Field(description="Id of the product.", examples=["prd_55"])]
ProductName = Annotated[StrictStr, Field(description="Name of the product.", examples=["API calls"])]
ProvisionedAmount = Annotated[
    ExactDecimal, Field(description="Provisioned quantity, in units.", examples=[Decimal(10000)])
]
ConsumedAmount = Annotated[
    ExactDecimal, Field(description="Consumed quantity, in units.", examples=[Decimal(8125)])
]
UsagePercentage = Annotated[
    ExactDecimal,
    Field(description="Consumed quantity, in percent of the provisioned.", examples=[Decimal("81.25")]),
]
HasAccess = Annotated[
    StrictBool, Field(description="Whether the customer still has access to the product.", examples=[True])
]
RemainingAmount = Annotated[
    ExactDecimal, Field(description="Remaining quantity, in units.", examples=[Decimal(1875)])
]
ExceededAmount = Annotated[
    ExactDecimal, Field(description="Usage beyond the commitment, in units.", examples=[Decimal(0)])
]


class BillingStatus(StrEnum):
    """The payment states that are listed. `NONE` is the text "None", which is not null."""

    NONE = "None"
    PAID = "Paid"
    REJECTED = "Rejected"
    PENDING_PAYMENT = "PendingPayment"
    OVERDUE = "Overdue"


class CreditKind(StrEnum):
    """What a credit is counted in, as far as it is listed."""

    MONETARY = "Monetary"
    UNIT = "Unit"


BillingStatusWord: TypeAlias = Annotated[
    BillingStatus | Literal["None", "Paid", "Rejected", "PendingPayment", "Overdue"],
    ListedWords(BillingStatus),
]
CreditKindWord: TypeAlias = Annotated[CreditKind | Literal["Monetary", "Unit"], ListedWords(CreditKind)]
