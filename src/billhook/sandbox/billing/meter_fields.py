"""What a meter says of itself. Ours: the specification shows no fields."""

from __future__ import annotations

import re
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, model_validator

from billhook.errors import FieldMissing, RuleBroken
from billhook.resources import Resource, Stored
from billhook.wire.fields import JsonValue, ListOf, Text

__all__ = ["Meter", "MeterFilter", "Method", "NewMeter", "Operator", "check_property"]

# In a path of SQLite's JSON these cannot be said.
_UNSPEAKABLE = re.compile(r'["\\\x00-\x1f]')


class Method(StrEnum):
    """How a meter adds events up."""

    COUNT = "count"
    SUM = "sum"
    MAX = "max"
    LAST = "last"
    UNIQUE = "unique"


class Operator(StrEnum):
    """How a filter compares."""

    EQUALS = "equals"
    NOT_EQUALS = "notEquals"
    IN = "in"
    GREATER_THAN = "greaterThan"
    LESS_THAN = "lessThan"
    EXISTS = "exists"


class MeterFilter(Resource, register=False):
    """Which events count: those whose `property` is so.

    Null is no value. `equals` and `in` tell 1 from "1" and from true, and take 1 and 1.0 for the same;
    `notEquals` is their contrary, true also without a value; `greaterThan` and `lessThan` hold for numbers.
    """

    property: Annotated[Text, Field(description="A key in the event's data.", examples=["region"])]
    operator: Annotated[Operator, Field(description="How to compare.", examples=["equals"])]
    value: Annotated[
        JsonValue, Field(description="What with; `exists` needs none, or true or false.", examples=["eu"])
    ] = None


class NewMeter(Resource, register=False):
    """The request of POST /_sandbox/meters."""

    name: Annotated[Text, Field(description="Name.", examples=["API calls"])]
    event_name: Annotated[Text, Field(description="Name of the events it counts.", examples=["api_call"])]
    aggregation_method: Annotated[Method, Field(description="How it adds them up.", examples=["sum"])]
    property: Annotated[
        Text | None,
        Field(
            description="The key in the event's data that it adds up; count needs none.", examples=["units"]
        ),
    ] = None
    filters: Annotated[
        ListOf[MeterFilter],
        Field(description="Conditions on the event's data: all must hold.", examples=[[]]),
    ] = Field(default_factory=list)
    catalog_product_id: Annotated[
        Text | None, Field(description="The catalog product whose usage it measures.", examples=["cat_7"])
    ] = None
    key: Annotated[
        Text | None,
        Field(description="Its key in aggregations; if none is given, eventName.", examples=["api_call"]),
    ] = None

    @model_validator(mode="after")
    def _sensible(self) -> NewMeter:
        if self.aggregation_method is not Method.COUNT and self.property is None:
            raise FieldMissing(
                f"a meter of the method {self.aggregation_method} needs the property that it adds up",
                "property",
            )
        if self.property is not None:
            check_property(self.property, "property")
        # Here and not in MeterFilter, which does not know its place in the list.
        for n, one in enumerate(self.filters):
            _check_filter(one, f"filters.{n}")
        return self


class Meter(Stored, NewMeter, register=False):
    """A meter as it is stored."""


def check_property(name: str, param: str) -> None:
    if not name or _UNSPEAKABLE.search(name):
        raise RuleBroken(
            f"{param} is a key in the event's data without quotes, backslashes and control characters", param
        )


def _check_filter(one: MeterFilter, place: str) -> None:
    check_property(one.property, f"{place}.property")
    if (wanted := _wanted(one.operator, one.value)) is not None:
        raise RuleBroken(f"the value of a filter {one.operator} is {wanted}", f"{place}.value")


def _wanted(operator: Operator, value: Any) -> str | None:
    """What the value should have been; None if it is good."""
    if operator is Operator.EXISTS:
        return None if value in (None, True, False) and not _is_number(value) else "true or false"
    if operator in (Operator.GREATER_THAN, Operator.LESS_THAN):
        return None if _is_number(value) else "a number"
    if operator is Operator.IN:
        good = isinstance(value, list) and value and all(map(_is_scalar, value))
        return None if good else "a list of texts, numbers, true and false"
    return None if _is_scalar(value) else "a text, a number, true or false"


def _is_number(value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | bool) or _is_number(value)
