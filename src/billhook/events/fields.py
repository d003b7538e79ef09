"""The types of the fields, and the fields that several events share: each is described here once.

Source: spec, "Events", rule 2 and the table; "Resources and their fields".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, FailFast, Field, StrictBool, StrictStr
from pydantic_core import PydanticCustomError

from billhook.events.strict_json import MAX_DIGITS, in_utc, is_bounded

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


def _moment(value: object) -> datetime:
    if isinstance(value, str) and _ISO_8601.fullmatch(value := value.upper()):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:  # of the right form, but no such day, hour or offset
            value = None
    if not isinstance(value, datetime):
        raise PydanticCustomError("moment", "Input should be an ISO 8601 date-time")
    try:
        return in_utc(value)
    except OverflowError:
        raise PydanticCustomError(
            "moment_range", "Input should be between the years 1 and 9999 in UTC"
        ) from None


def recognised(listed: type[StrEnum]) -> Callable[[str], str]:
    """A validator for an open enumeration: a listed value becomes its member, any other stays a str."""
    members = {member.value: member for member in listed}
    return lambda value: members.get(value, value)


Number = Annotated[Decimal, BeforeValidator(_number)]
"""A number with the digits of the wire. Takes Decimal, int and float (as Python prints it); never a str or
a bool, NaN or an infinity."""

Moment = Annotated[datetime, BeforeValidator(_moment)]
"""An aware UTC datetime. Takes ISO 8601 text (a date alone is its midnight) and datetimes; without an offset
they are read as UTC, with another one converted. Never a Unix time."""

Text = StrictStr
Flag = StrictBool

RaisedAt = Annotated[
    Moment, Field(description="When the event was raised.", examples=["2026-01-15T09:30:00Z"])
]

CustomerId = Annotated[Text, Field(description="Id of the customer.", examples=["cus_1042"])]
CustomerName = Annotated[Text, Field(description="Name of the customer.", examples=["Acme Ltd"])]
ExternalId = Annotated[
    Text | None,
    Field(description="Id that the customer has in your own system, if it has one.", examples=["crm-7731"]),
]
Aliases = Annotated[
    list[Text],
    FailFast(),
    Field(description="Names by which usage is matched to the customer.", examples=[["acme", "acme-eu"]]),
]

ContractId = Annotated[Text, Field(description="Id of the contract.", examples=["con_2001"])]
ContractName = Annotated[Text, Field(description="Name of the contract.", examples=["Acme annual 2026"])]

InvoiceId = Annotated[Text, Field(description="Id of the invoice.", examples=["inv_3007"])]
Currency = Annotated[Text, Field(description="Currency code of the amounts.", examples=["USD"])]

ProductId = Annotated[Text, Field(description="Id of the product.", examples=["prd_55"])]
ProductName = Annotated[Text, Field(description="Name of the product.", examples=["API calls"])]

Threshold = Annotated[
    Number, Field(description="The configured threshold, in percent.", examples=[Decimal(80)])
]
PctUsage = Annotated[
    Number,
    Field(
        description="How much is used, in percent, when the event was raised.", examples=[Decimal("81.25")]
    ),
]
