"""Calculate what one event adds to a meter. `event_data` implements the same rules in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from billhook.sandbox.billing.usage.meters import AggregationMethod, FilterOperator, Meter, MeterFilter
from billhook.wire import strict_json

__all__ = ["CompiledMeter", "Contribution", "value_identity"]

ONE = Decimal(1)


class Contribution(NamedTuple):
    """The contribution of one event to a meter."""

    value: Decimal | None
    """None if the meter's property has no value that it could add."""
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

    def contribution(self, data: Mapping[str, Any]) -> Contribution | None:
        """Return what an event with this `data` adds; None if a filter rejects it."""
        for holds in self._holds:
            if not holds(data):
                return None
        # Counts events without reading their data.
        if self.method is AggregationMethod.COUNT:
            return _COUNTED
        value = data.get(self._property)
        if self.method is AggregationMethod.UNIQUE:
            return Contribution(ONE, value) if value_identity(value) is not None else _NOTHING
        if type(value) is int or type(value) is Decimal:
            return Contribution(Decimal(value))
        return _NOTHING


_COUNTED = Contribution(ONE)
_NOTHING = Contribution(None)


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
