"""Query stored events: list them, and aggregate them in the database by groups.

The specification does not show the values of groupBy. Source: spec, "Endpoints", GET /events and
POST /v2/events/aggregation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Label,
    Select,
    Text,
    case,
    cast,
    func,
    literal,
    literal_column,
    or_,
    select,
    type_coerce,
)

from billhook.errors import RuleBroken
from billhook.fields.strict_json import datetime_text
from billhook.resources import AggregationRequest, DataPoint, EventQuery, MeterKey, Period
from billhook.sandbox.billing.contracts import customers
from billhook.sandbox.billing.usage import meters
from billhook.sandbox.billing.usage.meters import AggregationMethod, Meter, check_property
from billhook.sandbox.billing.usage.money import ZERO
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.options import MAX_AGGREGATED_METERS, MAX_GROUPS
from billhook.sandbox.storage.columns import to_microseconds
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import ListPage, matching, requested_page
from billhook.sandbox.storage.tables import alias, event

_YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)  # a Monday
_DAY, _MICROSECOND = timedelta(days=1), timedelta(microseconds=1)
DATA_PREFIX = "data."


class EventData:
    """The value under a key of `data`, by SQLite's JSON functions."""

    def __init__(self, key: str) -> None:
        # Safe to interpolate: check_property() rejects keys with quotes or backslashes.
        path = literal(f'$.data."{key}"', Text)
        self._type = func.json_type(event.c.body, path, type_=Text)
        self.value = func.json_extract(event.c.body, path)
        """The value; a number as SQLite's integer or double, which has not all digits."""
        self.json = event.c.body.op("->", return_type=Text())(path)
        """The value as it was sent, with all its digits."""

    def text(self) -> ColumnElement[Any]:
        """Return the value as text to group by, equal for equal numbers; null without one."""
        is_number = func.typeof(self.value).in_(["integer", "real"])
        is_boolean = self._type.in_(["true", "false"])
        other = cast(self.value, Text)
        return case(
            (is_boolean, self._type),
            (is_number, func.number_text(self.json)),
            (self._type != "null", other),
        )

    def instance(self) -> ColumnElement[Any]:
        """Return a text that is distinct for distinct scalars."""
        # The prefix keeps the text "1" apart from the number 1, and "true" from true.
        text = literal("=", Text) + cast(self.value, Text)
        return case((self._type == "text", text), else_=self.text())


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups events: in the database by `column`, in the response by `name`."""

    column: ColumnElement[Any]
    """An expression over the table of events that is equal for the events of one group."""
    name: Callable[[Any], str] = lambda value: "" if value is None else str(value)
    """Returns the group's name, from the value of `column`."""
    all: Callable[[datetime, datetime], Iterable[str]] = lambda start, end: ()
    """Returns the names of the groups between two moments that exist even without events."""


def _spans(length: timedelta) -> Grouping:
    """Return the grouping by spans of one length since the year 1: hours, days, weeks from Monday."""

    def name(number: int) -> str:
        begin = _YEAR_1 + number * length
        return datetime_text(begin) if length < _DAY else begin.date().isoformat()

    def names(start: datetime, end: datetime) -> Iterable[str]:
        first, last = ((moment - _YEAR_1) // length for moment in (start, end - _MICROSECOND))
        return map(name, range(first, last + 1))

    # Counted from the year 1 no number is negative, so integer division rounds down.
    since = type_coerce(event.c.at, BigInteger) - to_microseconds(_YEAR_1)
    return Grouping(since // (length // _MICROSECOND), name, names)


def _months(start: datetime, end: datetime) -> Iterable[str]:
    # `end` is exclusive: midnight of a first belongs to the month before it.
    last = end - _MICROSECOND
    numbers = range(start.year * 12 + start.month - 1, last.year * 12 + last.month)
    return (f"{number // 12:04}-{number % 12 + 1:02}" for number in numbers)


# Rounded down, not towards zero: before 1970 the two differ.
_OF_DAY = "((event.at % 86400000000) + 86400000000) % 86400000000"
_MONTH = f"strftime('%Y-%m', (event.at - {_OF_DAY}) / 86400000000 * 86400, 'unixepoch')"


GROUPINGS: Mapping[str, Grouping] = {
    "hour": _spans(timedelta(hours=1)),
    "day": _spans(_DAY),
    "week": _spans(timedelta(weeks=1)),
    "month": Grouping(literal_column(_MONTH, Text), all=_months),
    "customer": Grouping(event.c.customer_id),
    "eventName": Grouping(event.c.name),
}


def grouping(group_by: str) -> Grouping:
    """Return the grouping of this name; rejects an unknown one."""
    if group_by in GROUPINGS:
        return GROUPINGS[group_by]
    if group_by.startswith(DATA_PREFIX):
        key = group_by.removeprefix(DATA_PREFIX)
        try:
            check_property(key, "groupBy")
        except RuleBroken as error:
            raise invalid_request(str(error), "groupBy") from None
        return Grouping(EventData(key).text())
    raise invalid_request(
        f"groupBy must be one of {', '.join(GROUPINGS)}, or {DATA_PREFIX}<name> for a key in the events' "
        "data",
        "groupBy",
    )


def list_events(tx: Transaction, query: EventQuery) -> ListPage[str]:
    """Return one page of the events in a time range, each as its JSON.

    They are ordered by timestamp; events with the same timestamp are in the order in which they arrived.
    """
    if query.end_time < query.start_time:
        raise invalid_request("endTime is before startTime", "startTime", "endTime")
    where = [event.c.at >= query.start_time, event.c.at < query.end_time]
    where += matching((event.c.name, query.event_name), (event.c.alias, query.customer_alias))
    at = type_coerce(event.c.at, BigInteger)
    found = requested_page(tx, query, select(event.c.body).where(*where), event.c.seq, at)
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
    # What the meter counted when the events arrived. Without filters it counts all of them, and the index
    # alone is read.
    if meter is not None and (meter.filters or method is not AggregationMethod.COUNT):
        where.append(func.instr(event.c.meter_ids, meter.id) > 0)
    data = EventData((meter and meter.property) or "")
    statement = _statement(method, data, groups.column.label("grouped"), where)
    # One more than allowed, so that the excess is noticed.
    for group, value in tx.execute(statement.limit(MAX_GROUPS + 1)):
        yield groups.name(group), Decimal(value)


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


def _statement(
    method: AggregationMethod, data: EventData, group: Label[Any], where: Sequence[ColumnElement[bool]]
) -> Select[Any]:
    """Return the statement that adds up `data` by this method, for each group of the events."""

    def rows(**columns: ColumnElement[Any]) -> Any:
        named = (column.label(name) for name, column in columns.items())
        # OFFSET 0 keeps SQLite from flattening the subquery, which would parse the JSON once for each use.
        return select(group, *named).where(*where).offset(0).subquery().c

    match method:
        case AggregationMethod.COUNT:
            return select(group, func.count()).where(*where).group_by(group)
        case AggregationMethod.UNIQUE:
            found = rows(value=data.instance())
            return select(found.grouped, func.count(found.value.distinct())).group_by(found.grouped)
        case AggregationMethod.MAX | AggregationMethod.SUM:
            found = rows(digits=data.json)
            # SQLite's own functions would lose digits.
            exact = getattr(func, f"exact_{method}")
            return select(found.grouped, exact(found.digits)).group_by(found.grouped)
        case AggregationMethod.LAST:
            found = rows(digits=data.json, at=event.c.at, seq=event.c.seq)
            # Of two events with the same timestamp, the one that arrived later is the last.
            order = [found.at.desc(), found.seq.desc()]
            place = func.row_number().over(partition_by=found.grouped, order_by=order).label("place")
            placed = select(found.grouped, found.digits, place).subquery().c
            return select(placed.grouped, placed.digits).where(placed.place == 1)
