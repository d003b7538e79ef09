"""Meters: which events they count, and what an event adds to them.

The specification shows none of their fields. Source: spec, "Endpoints", Meters; "Event (ingested)", on
eventName; POST /events/dry-run.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import Field, StrictStr, model_validator
from sqlalchemy import select

from billhook.errors import FieldMissing, RuleBroken
from billhook.fields import strict_json
from billhook.fields.types import JsonValue, ListOf
from billhook.resources import StoredResource
from billhook.sandbox.billing.usage.money import is_number
from billhook.sandbox.errors import already_exists, check_key, invalid_request
from billhook.sandbox.operations import SandboxResource
from billhook.sandbox.options import MAX_CONDITIONS
from billhook.sandbox.storage.columns import in_texts
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import Repository, request_document
from billhook.sandbox.storage.tables import catalog_product, meter

# SQLite's JSON paths have no escape for these characters.
_NOT_IN_JSON_PATH = re.compile(r'["\\\x00-\x1f]')


class AggregationMethod(StrEnum):
    """How a meter adds events up."""

    COUNT = "count"
    SUM = "sum"
    MAX = "max"
    LAST = "last"
    UNIQUE = "unique"


class FilterOperator(StrEnum):
    """How a filter compares."""

    EQUALS = "equals"
    NOT_EQUALS = "notEquals"
    IN = "in"
    GREATER_THAN = "greaterThan"
    LESS_THAN = "lessThan"
    EXISTS = "exists"


class MeterFilter(SandboxResource, register=False):
    """A condition on an event's `property`.

    Null is no value. `equals` and `in` distinguish 1 from "1" and from true, but not 1 from 1.0. `notEquals`
    is the opposite of `equals`, so it is true without a value. `greaterThan` and `lessThan` are true for
    numbers alone.
    """

    property: Annotated[StrictStr, Field(examples=["region"])]
    """A key in the event's data."""
    operator: Annotated[FilterOperator, Field(examples=["equals"])]
    """Comparison operator."""
    value: Annotated[JsonValue, Field(examples=["eu"])] = None
    """Value to compare with; `exists` needs none, or true or false."""


class NewMeter(SandboxResource, register=False):
    """The request of POST /_sandbox/meters."""

    name: Annotated[StrictStr, Field(examples=["API calls"])]
    """Name of the meter."""
    event_name: Annotated[StrictStr, Field(examples=["api_call"])]
    """Name of the events that the meter counts."""
    aggregation_method: Annotated[AggregationMethod, Field(examples=["sum"])]
    """How the meter adds events up."""
    property: Annotated[StrictStr | None, Field(examples=["units"])] = None
    """Key in the event's data with the value to add up; count needs none."""
    filters: Annotated[ListOf[MeterFilter], Field(examples=[[]])] = Field(default_factory=list)
    """Conditions on the event's data: all must hold."""
    catalog_product_id: Annotated[StrictStr | None, Field(examples=["cat_7"])] = None
    """The catalog product whose usage it measures."""
    key: Annotated[StrictStr | None, Field(examples=["api_call"])] = None
    """Key of the meter in aggregations; eventName by default."""

    @model_validator(mode="after")
    def _sensible(self) -> NewMeter:
        # Only count works without a value.
        if self.aggregation_method is not AggregationMethod.COUNT and self.property is None:
            raise FieldMissing(
                f"a meter of the method {self.aggregation_method} needs the property that it adds up",
                "property",
            )
        if self.property is not None:
            check_property(self.property, "property")
        # Checked here: a MeterFilter does not know its position in the list.
        for n, one in enumerate(self.filters):
            check_property(one.property, f"filters.{n}.property")
            if (wanted := _expected_value(one.operator, one.value)) is not None:
                text = f"the value of a filter {one.operator} must be {wanted}"
                raise RuleBroken(text, f"filters.{n}.value")
        return self


class Meter(StoredResource, NewMeter, register=False):
    """A meter as it is stored."""


def check_property(name: str, param: str) -> None:
    """Reject a key that SQLite's JSON paths cannot express."""
    if not name or _NOT_IN_JSON_PATH.search(name):
        raise RuleBroken(
            f"{param} must be a key in the event's data without quotes, backslashes and control characters",
            param,
        )


def _expected_value(operator: FilterOperator, value: Any) -> str | None:
    """Return what the value should be, for the error; None if it is valid."""
    if operator is FilterOperator.EXISTS:
        return None if value in (None, True, False) and not is_number(value) else "true or false"
    if operator in (FilterOperator.GREATER_THAN, FilterOperator.LESS_THAN):
        return None if is_number(value) else "a number"
    if operator is FilterOperator.IN:
        good = isinstance(value, list) and value and all(map(_is_scalar, value))
        return None if good else "a list of texts, numbers, true and false"
    return None if _is_scalar(value) else "a text, a number, true or false"


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | bool) or is_number(value)


METERS = Repository(meter, Meter, "mtr")


def create(tx: Transaction, request: NewMeter) -> Meter:
    """Create a meter. It counts events that arrive from now on."""
    # Each filter and value is one more condition for every event that is aggregated.
    if len(request.filters) > MAX_CONDITIONS:
        raise invalid_request(f"a meter has at most {MAX_CONDITIONS} filters", "filters")
    for n, one in enumerate(request.filters):
        if isinstance(one.value, list) and len(one.value) > MAX_CONDITIONS:
            raise invalid_request(f"a filter has at most {MAX_CONDITIONS} values", f"filters.{n}.value")
    for name in ("event_name", "key", "property", "catalog_product_id"):
        check_key(getattr(request, name), NewMeter.model_fields[name].alias or name)
    # Keys tell meters of one event apart in aggregations.
    taken = {one.key for one in by_event_name(tx, [request.event_name]).get(request.event_name, ())}
    names = itertools.chain([request.event_name], (f"{request.event_name}-{n}" for n in itertools.count(2)))
    key = request.key or next(name for name in names if name not in taken)
    if key in taken:
        raise already_exists("another meter of this event has this key", "key")
    if (product_id := request.catalog_product_id) is not None:
        if not tx.any(catalog_product, catalog_product.c.id == product_id):
            raise invalid_request("there is no such catalog product", "catalogProductId")
        # Two meters would bill the same usage twice.
        if find_by_product(tx, product_id) is not None:
            raise already_exists("another meter measures this product", "catalogProductId")
    data = request_document(request)
    return METERS.add(tx, {**data, "key": key, "filters": data.get("filters") or []})


def find_by_product(tx: Transaction, catalog_product_id: str) -> Meter | None:
    """Return the meter that measures a catalog product's usage, or None."""
    return METERS.first(tx, meter.c.catalog_product_id == catalog_product_id)


def by_product(tx: Transaction, catalog_product_ids: Collection[str]) -> dict[str, Meter]:
    """Return the meters of several catalog products, by product id, with one query."""
    if not catalog_product_ids:
        return {}
    which = in_texts(meter.c.catalog_product_id, catalog_product_ids)
    return {str(each.catalog_product_id): each for each in METERS.all(tx, which)}


def products_of(tx: Transaction, meter_ids: Collection[str]) -> dict[str, str]:
    """Return the catalog products that these meters measure, by meter id; those without one are left out."""
    which = in_texts(meter.c.id, meter_ids), meter.c.catalog_product_id.is_not(None)
    rows = tx.execute(select(meter.c.id, meter.c.catalog_product_id).where(*which))
    return {row.id: row.catalog_product_id for row in rows}


def by_event_name(tx: Transaction, names: Collection[str]) -> dict[str, list[Meter]]:
    """Return the meters for events with these names, oldest first. At most 1000 names."""
    found: defaultdict[str, list[Meter]] = defaultdict(list)
    for one in METERS.all(tx, meter.c.event_name.in_(names)):
        found[one.event_name].append(one)
    return found


ONE = Decimal(1)


class Contribution(NamedTuple):
    """The contribution of one event to a meter."""

    value: Decimal | None
    """None if a filter rejects the event, or the meter's property has no value that it could add."""
    instance: Any = None
    """The value to count once, as it was sent, for a meter of the method unique."""


class CompiledMeter:
    """A meter prepared to evaluate many events."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.id = meter.id
        self.method = meter.aggregation_method
        self._property = meter.property or ""
        self._holds = [_compile_filter(one) for one in meter.filters]

    def contribution(self, data: Mapping[str, Any]) -> Contribution:
        """Return what an event with this `data` adds."""
        for holds in self._holds:
            if not holds(data):
                return NOTHING
        # Counts events without reading their data.
        if self.method is AggregationMethod.COUNT:
            return _COUNTED
        value = data.get(self._property)
        if self.method is AggregationMethod.UNIQUE:
            return Contribution(ONE, value) if value_identity(value) is not None else NOTHING
        if type(value) is int or type(value) is Decimal:
            return Contribution(Decimal(value))
        return NOTHING


_COUNTED = Contribution(ONE)

NOTHING = Contribution(None)


def value_identity(value: object) -> str | None:
    """Return JSON that is equal for equal values, as for 1 and 1.0; None for objects, lists and null."""
    if type(value) is int or type(value) is Decimal:
        sign, digits, exponent = Decimal(value).as_tuple()
        text = "".join(map(str, digits)).lstrip("0")
        # The shortest digits and their exponent: 1, 1.0 and 10e-1 have one spelling.
        short = text.rstrip("0")
        return f"{'-' if sign else ''}{short}e{int(exponent) + len(text) - len(short)}" if short else "0"
    if type(value) is str or type(value) is bool:
        return strict_json.dumps(value).decode()
    return None


def _compile_filter(one: MeterFilter) -> Callable[[Mapping[str, Any]], bool]:
    name, wanted = one.property, one.value
    if one.operator is FilterOperator.EXISTS:
        # Evaluated once for each filter, not for each event.
        there = wanted is not False
        return lambda data: (data.get(name) is not None) is there
    if one.operator in (FilterOperator.GREATER_THAN, FilterOperator.LESS_THAN):
        above = one.operator is FilterOperator.GREATER_THAN

        def compares(data: Mapping[str, Any]) -> bool:
            value = data.get(name)
            if type(value) is not int and type(value) is not Decimal:
                return False
            return bool(value > wanted if above else value < wanted)

        return compares
    # Compared by identity, because Python takes True and 1 for equal.
    among = {value_identity(each) for each in (wanted if one.operator is FilterOperator.IN else [wanted])}
    if one.operator is FilterOperator.NOT_EQUALS:
        return lambda data: value_identity(data.get(name)) not in among
    return lambda data: value_identity(data.get(name)) in among
