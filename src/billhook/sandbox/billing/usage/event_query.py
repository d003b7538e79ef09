"""Query stored events: list them, and aggregate them in the database.

Source: spec, "Endpoints", GET /events and POST /v2/events/aggregation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Subquery, and_, case, func, null, or_, select, type_coerce

from billhook.resources import AggregationRequest, DataPoint, EventQuery, MeterKey, Period
from billhook.sandbox.billing import customers
from billhook.sandbox.billing.money import ZERO, exact_sum
from billhook.sandbox.billing.usage import meters
from billhook.sandbox.billing.usage.event_data import EventData, Grouping, grouping
from billhook.sandbox.billing.usage.meters import AggregationMethod, Meter
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.options import MAX_AGGREGATED_METERS, MAX_GROUPS
from billhook.sandbox.storage.repository import ListPage, fetch_page
from billhook.sandbox.storage.tables.billing import alias
from billhook.sandbox.storage.tables.usage import event
from billhook.sandbox.storage.transaction import Transaction


def list_events(tx: Transaction, query: EventQuery, limit: int) -> ListPage[str]:
    """Return one page of the events in a time range, each as its JSON.

    They are ordered by their timestamps; of one moment, in the order of arrival.
    """
    if query.end_time < query.start_time:
        raise invalid_request("endTime is before startTime", "startTime", "endTime")
    where = [event.c.at >= query.start_time, event.c.at < query.end_time]
    if query.event_name is not None:
        where.append(event.c.name == query.event_name)
    if query.customer_alias is not None:
        where.append(event.c.alias == query.customer_alias)
    at = type_coerce(event.c.at, BigInteger)
    found = fetch_page(tx, select(event.c.body).where(*where), limit, query.cursor, event.c.seq, at)
    return found.of(lambda row: row.body)


def aggregate(tx: Transaction, request: AggregationRequest) -> list[DataPoint]:
    """Return the figures of each group, in the order of the groups; each has all keys, 0 without events."""
    period = request.period
    if period.end_time < period.start_time:
        raise invalid_request("endTime is before startTime", "period.startTime", "period.endTime")
    keys = [wanted.key for wanted in request.meters]
    if not 1 <= len(keys) <= MAX_AGGREGATED_METERS:
        raise invalid_request(f"meters must have 1 to {MAX_AGGREGATED_METERS} entries", "meters")
    if len(set(keys)) < len(keys):
        raise invalid_request("two meters have the same key: give each its own", "meters")
    groups = grouping(request.group_by)
    customer_clause = _customer_clause(tx, request)
    figures: defaultdict[str, dict[str, Decimal]] = defaultdict(dict)
    # Counted while generating: a long period must not fill the memory before it is rejected.
    if request.fill_dates and period.start_time < period.end_time:
        for count, name in enumerate(groups.all(period.start_time, period.end_time)):
            _check_count(count + 1)
            figures[name] = {}
    for wanted in request.meters:
        for group, value in _figures(tx, wanted, groups, customer_clause, period):
            figures[group][wanted.key] = value
            _check_count(len(figures))
    return [
        DataPoint(group=group, values={key: figures[group].get(key, ZERO) for key in keys})
        for group in sorted(figures)
    ]


def _check_count(count: int) -> None:
    if count > MAX_GROUPS:
        raise invalid_request(
            f"there are more than {MAX_GROUPS} groups: choose a shorter period or larger groups", "groupBy"
        )


def _customer_clause(tx: Transaction, request: AggregationRequest) -> ColumnElement[bool]:
    """Return the condition for the customer's events, or for all customers that match the pattern."""
    # An unknown customer would otherwise look like one without usage.
    customers.find_named(tx, request.customer_id)
    if request.customer_id_pattern is None:
        return event.c.customer_id == request.customer_id
    # GLOB instead of LIKE, which ignores case. The pattern is matched against the few aliases of each
    # customer, never against events.
    pattern = re.sub(r"[?[]", r"[\g<0>]", request.customer_id_pattern)
    fits = alias.c.alias.op("GLOB")(pattern)
    # A customer's id is one of its aliases.
    customer_clause = select(alias.c.customer_id).where(or_(fits, alias.c.alias == request.customer_id))
    return event.c.customer_id.in_(customer_clause)


def _figures(
    tx: Transaction, wanted: MeterKey, groups: Grouping, customer_clause: ColumnElement[bool], period: Period
) -> Iterator[tuple[str, Decimal]]:
    """Yield group and figure as the meter defines it; without a meter, the number of events."""
    meter = _meter_for(tx, wanted)
    method = AggregationMethod.COUNT if meter is None else meter.aggregation_method
    where = [customer_clause, event.c.name == wanted.event_name]
    where += [event.c.at >= period.start_time, event.c.at < period.end_time]
    columns: list[ColumnElement[Any]] = [groups.column.label("grouped")]
    if meter is not None:
        # What the meter counted when the events arrived. Without filters it counts all of them, and the index
        # alone is read.
        if meter.filters or method is not AggregationMethod.COUNT:
            where.append(func.instr(event.c.meter_ids, meter.id) > 0)
        columns += _value_columns(meter, method)
    # OFFSET 0 keeps SQLite from flattening the subquery, which would parse the JSON once for each use.
    rows = select(*columns).where(*where)
    inner = (rows if method is AggregationMethod.COUNT else rows.offset(0)).subquery()
    statement = _aggregated(method, inner)
    # One more than allowed, so that the excess is noticed.
    for row in tx.connection.execute(statement.limit(MAX_GROUPS + 1)):
        yield groups.name(row[0]), exact_sum(Decimal(part) for part in row[1:] if part is not None)


def _meter_for(tx: Transaction, wanted: MeterKey) -> Meter | None:
    """Return the only meter of these events with any key; of several the one with the key.

    None if no meter counts them: the key only names the figures then.
    """
    known = meters.by_event_name(tx, [wanted.event_name]).get(wanted.event_name, [])
    if len(known) < 2:
        return known[0] if known else None
    found = next((one for one in known if one.key == wanted.key), None)
    # Any choice would be a guess, so the caller has to name one.
    if found is None:
        keys = ", ".join(str(one.key) for one in known[:10])
        raise invalid_request(
            f"several meters count these events, and none of them has this key: give one of {keys}", "meters"
        )
    return found


def _value_columns(meter: Meter, method: AggregationMethod) -> list[ColumnElement[Any]]:
    under = EventData(meter.property or "")
    value = under.value.label("value")
    match method:
        case AggregationMethod.COUNT:
            return []
        case AggregationMethod.UNIQUE:
            return [under.instance().label("value")]
        case AggregationMethod.LAST:
            return [under.json.label("digits"), event.c.at, event.c.seq]
        case AggregationMethod.MAX:
            return [value, under.json.label("digits")]
        case AggregationMethod.SUM:
            # Many of these fit into SQLite's integers when they are added; of other numbers the text is.
            is_small = and_(func.typeof(under.value) == "integer", func.abs(under.value) < 10**12)
            return [value, case((is_small, null()), else_=under.json).label("digits")]


def _aggregated(method: AggregationMethod, rows: Subquery) -> Any:
    group = rows.c.grouped
    match method:
        case AggregationMethod.COUNT:
            return select(group, func.count()).group_by(group)
        case AggregationMethod.UNIQUE:
            return select(group, func.count(rows.c.value.distinct())).group_by(group)
        case AggregationMethod.MAX:
            # SQLite takes the other column of a maximum from the row that has it.
            found = select(group, rows.c.digits, func.max(rows.c.value)).group_by(group).subquery()
            return select(found.c.grouped, found.c.digits)
        case AggregationMethod.SUM:
            # Only what SQLite cannot add exactly is added by the slower function.
            value, digits = rows.c.value, rows.c.digits
            sums = (
                func.sum(value).filter(digits.is_(None)),
                func.exact_sum(digits).filter(digits.is_not(None)),
            )
            return select(group, *sums).group_by(group)
        case AggregationMethod.LAST:
            # Of two events at one moment the one that arrived later is the last.
            order = [rows.c.at.desc(), rows.c.seq.desc()]
            place = func.row_number().over(partition_by=group, order_by=order).label("place")
            placed = select(group, rows.c.digits, place).subquery()
            return select(placed.c.grouped, placed.c.digits).where(placed.c.place == 1)
