"""What a meter makes of one event. The same is said in SQL by `event_sql`, for aggregations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from billhook.sandbox.billing.meter_fields import Meter, MeterFilter, Method, Operator
from billhook.wire import strict_json

__all__ = ["Contribution", "Metering", "identity"]

ONE = Decimal(1)


class Contribution(NamedTuple):
    """What an event adds to a meter."""

    value: Decimal | None
    """None where the meter's property holds nothing that it could add."""
    instance: Any = None
    """What is counted once, for a meter that counts instances; as it was sent."""


class Metering:
    """A meter made ready for many events."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.id = meter.id
        self.method = meter.aggregation_method
        self._property = meter.property or ""
        self._holds = [_compiled(one) for one in meter.filters]

    def contribution(self, data: Mapping[str, Any]) -> Contribution | None:
        """What an event with this `data` adds; None if a filter keeps it out."""
        for holds in self._holds:
            if not holds(data):
                return None
        if self.method is Method.COUNT:
            return _COUNTED
        value = data.get(self._property)
        if self.method is Method.UNIQUE:
            return Contribution(ONE, value) if identity(value) is not None else _NOTHING
        if type(value) is int or type(value) is Decimal:
            return Contribution(Decimal(value))
        return _NOTHING


_COUNTED = Contribution(ONE)
_NOTHING = Contribution(None)


def identity(value: object) -> str | None:
    """JSON by which equal values are equal, 1 and 1.0 among them; None for what is no single value."""
    if type(value) is int or type(value) is Decimal:
        sign, digits, exponent = Decimal(value).as_tuple()
        text = "".join(map(str, digits)).lstrip("0")
        short = text.rstrip("0")
        return f"{'-' if sign else ''}{short}e{int(exponent) + len(text) - len(short)}" if short else "0"
    if type(value) is str or type(value) is bool:
        return strict_json.dumps(value).decode()
    return None


def _compiled(one: MeterFilter) -> Callable[[Mapping[str, Any]], bool]:
    name, wanted = one.property, one.value
    if one.operator is Operator.EXISTS:
        there = wanted is not False
        return lambda data: (data.get(name) is not None) is there
    if one.operator in (Operator.GREATER_THAN, Operator.LESS_THAN):
        above = one.operator is Operator.GREATER_THAN

        def compares(data: Mapping[str, Any]) -> bool:
            value = data.get(name)
            if type(value) is not int and type(value) is not Decimal:
                return False
            return bool(value > wanted if above else value < wanted)

        return compares
    among = {identity(each) for each in (wanted if one.operator is Operator.IN else [wanted])}
    if one.operator is Operator.NOT_EQUALS:
        return lambda data: identity(data.get(name)) not in among
    return lambda data: identity(data.get(name)) in among
