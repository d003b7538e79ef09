"""Adding up stored events in the database. Source: spec, "Endpoints", POST /v2/events/aggregation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Subquery, case, cast, func, or_, select

from billhook.resources import AggregationRequest, DataPoint, MeterKey, Period
from billhook.sandbox.billing import customers, meters
from billhook.sandbox.billing.event_sql import event_data, holds
from billhook.sandbox.billing.exact import ZERO
from billhook.sandbox.billing.groups import Grouping, grouping
from billhook.sandbox.billing.meter_fields import Meter, Method
from billhook.sandbox.limits import MAX_AGGREGATED_METERS, MAX_GROUPS
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.tables.entities import alias
from billhook.sandbox.storage.tables.usage import event
from billhook.sandbox.transaction import Transaction

__all__ = ["aggregate"]

_NANO = Decimal(10**9)


def aggregate(tx: Transaction, given: AggregationRequest) -> list[DataPoint]:
    """The figures of each group, in the order of the groups; every one has every key, 0 where nothing was."""
    period = given.period
    if period.end_time < period.start_time:
        raise invalid_request("endTime is before startTime", "period.startTime", "period.endTime")
    _check_keys(given)
    groups = grouping(given.group_by, tx.connection.dialect.name)
    whose = _whose(tx, given)
    figures: defaultdict[str, dict[str, Decimal]] = defaultdict(dict)
    if given.fill_dates:
        for count, name in enumerate(groups.all(period.start_time, period.end_time)):
            _check_count(count + 1)
            figures[name] = {}
    for wanted in given.meters:
        for group, value in _figures(tx, wanted, groups, whose, period):
            figures[group][wanted.key] = value
            _check_count(len(figures))
    keys = [wanted.key for wanted in given.meters]
    return [
        DataPoint(group=group, values={key: figures[group].get(key, ZERO) for key in keys})
        for group in sorted(figures)
    ]


def _check_keys(given: AggregationRequest) -> None:
    keys = [wanted.key for wanted in given.meters]
    if not 1 <= len(keys) <= MAX_AGGREGATED_METERS:
        raise invalid_request(f"meters has 1 to {MAX_AGGREGATED_METERS} entries", "meters")
    if len(set(keys)) < len(keys):
        raise invalid_request("two meters have the same key: give each its own", "meters")


def _check_count(count: int) -> None:
    if count > MAX_GROUPS:
        raise invalid_request(
            f"there are more than {MAX_GROUPS} groups: choose a shorter period or larger groups", "groupBy"
        )


def _whose(tx: Transaction, given: AggregationRequest) -> ColumnElement[bool]:
    """The customer's events, or also those of the customers that fit the pattern."""
    if customers.CUSTOMERS.find(tx, given.customer_id) is None:
        raise invalid_request("there is no such customer", "customerId")
    if given.customer_id_pattern is None:
        return event.c.customer_id == given.customer_id
    # Comparing needs case, so no LIKE: SQLite's has none. Patterns go by names, which are no more than
    # a few for each customer, and never by events.
    if tx.connection.dialect.name == "postgresql":
        fits = alias.c.alias.like(_escaped(given.customer_id_pattern, r"\%_", "\\{}").replace("*", "%"))
    else:
        fits = alias.c.alias.op("GLOB")(_escaped(given.customer_id_pattern, "?[", "[{}]"))
    # Its id is one of a customer's names.
    whose = select(alias.c.customer_id).where(or_(fits, alias.c.alias == given.customer_id))
    return event.c.customer_id.in_(whose)


def _escaped(pattern: str, special: str, form: str) -> str:
    return "".join(form.format(each) if each in special else each for each in pattern)


def _figures(
    tx: Transaction, wanted: MeterKey, groups: Grouping, whose: ColumnElement[bool], period: Period
) -> Iterator[tuple[str, Decimal]]:
    """Group and figure, as the meter has it; of events without a meter, how many there are."""
    meter = _meter(tx, wanted)
    method = Method.COUNT if meter is None else meter.aggregation_method
    data = event_data(tx.connection.dialect.name)
    where = [whose, event.c.name == wanted.event_name]
    where += [event.c.at >= period.start_time, event.c.at < period.end_time]
    columns: list[ColumnElement[Any]] = [groups.column().label("grouped")]
    if meter is not None:
        where += [holds(one, data(one.property)) for one in meter.filters]
        columns += _value(meter, method, data)
    # OFFSET 0 keeps SQLite from putting the expressions back in, and reading the JSON for each use anew.
    rows = select(*columns).where(*where)
    inner = (rows if method is Method.COUNT else rows.offset(0)).subquery()
    statement = _added(method, inner, exact=tx.connection.dialect.name == "postgresql")
    for row in tx.connection.execute(statement.limit(MAX_GROUPS + 1)):
        yield groups.name(row[0]), _decimal(row[1:])


def _meter(tx: Transaction, wanted: MeterKey) -> Meter | None:
    """The only meter of these events, whatever the key, which names its figures; of several that of the key.

    None where no meter counts them.
    """
    known = meters.by_event_name(tx, [wanted.event_name]).get(wanted.event_name, [])
    if len(known) < 2:
        return known[0] if known else None
    found = next((one for one in known if one.key == wanted.key), None)
    if found is None:
        keys = ", ".join(str(one.key) for one in known[:10])
        raise invalid_request(
            f"several meters count these events, and none of them has this key: give one of {keys}", "meters"
        )
    return found


def _value(meter: Meter, method: Method, data: Any) -> list[ColumnElement[Any]]:
    under = data(meter.property or "")
    if method is Method.COUNT:
        return []
    value = under.instance() if method is Method.UNIQUE else under.number()
    more = [event.c.at, event.c.seq] if method is Method.LAST else []
    return [value.label("value"), *more]


def _added(method: Method, rows: Subquery, *, exact: bool) -> Any:
    group = rows.c.grouped
    match method:
        case Method.COUNT:
            return select(group, func.count()).group_by(group)
        case Method.UNIQUE:
            return select(group, func.count(rows.c.value.distinct())).group_by(group)
        case Method.MAX:
            return _with_a_value(rows, func.max(rows.c.value))
        case Method.SUM:
            return _with_a_value(rows, *_sums(rows.c.value, exact=exact))
        case Method.LAST:
            order = [rows.c.at.desc(), rows.c.seq.desc()]
            place = func.row_number().over(partition_by=group, order_by=order).label("place")
            placed = select(group, rows.c.value, place).where(rows.c.value.is_not(None)).subquery()
            return select(placed.c.grouped, placed.c.value).where(placed.c.place == 1)


def _with_a_value(rows: Subquery, *figures: ColumnElement[Any]) -> Any:
    return select(rows.c.grouped, *figures).where(rows.c.value.is_not(None)).group_by(rows.c.grouped)


def _sums(value: ColumnElement[Any], *, exact: bool) -> list[ColumnElement[Any]]:
    """What gives the sum. SQLite adds doubles up, so whole units and billionths go apart, as integers."""
    if exact:
        return [func.sum(value)]
    small = func.abs(value) < 1e12
    whole = cast(value, BigInteger)
    billionths = cast(func.round((value - whole) * 1e9), BigInteger)
    return [
        func.sum(case((small, whole), else_=value * 1.0)),
        func.sum(case((small, billionths), else_=0)),
    ]


def _decimal(parts: Any) -> Decimal:
    whole, *billionths = (_number(part) for part in parts)
    return whole + billionths[0] / _NANO if billionths else whole


def _number(value: Any) -> Decimal:
    if not isinstance(value, float):
        return Decimal(value)
    if not math.isfinite(value):
        raise invalid_request("a figure is larger than SQLite can count: use PostgreSQL", "meters")
    return Decimal(repr(value))
