"""Daily usage: each customer's figures by meter and day, updated as events arrive and cheap to read.

A billing cycle that ends within a day cuts the day in two parts, so that each part counts for its own cycle.
Source: spec, "Resources and their fields", Event (ingested) and Measurement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from billhook.resources import UsageEvent
from billhook.sandbox.billing.money import ZERO, exact_sum
from billhook.sandbox.billing.usage import meters
from billhook.sandbox.billing.usage.meters import (
    AggregationMethod,
    CompiledMeter,
    Contribution,
    Meter,
    value_identity,
)
from billhook.sandbox.storage.columns import (
    from_microseconds,
    in_texts,
    insert_rows,
    select_by_keys,
    to_microseconds,
)
from billhook.sandbox.storage.tables.usage import event, usage_cut, usage_day, usage_instance
from billhook.sandbox.storage.transaction import Transaction

MICROSECONDS_PER_DAY = 86_400_000_000
TimeSpan = tuple[datetime, datetime]
"""From a moment to before another."""
UsageKey = tuple[str, str, int, int]
"""Customer, meter, day, and the microsecond at which the day or its part begins."""

_EPOCH = date(1970, 1, 1)
_KEY = ("customer_id", "meter_id", "day", "since")
_FIGURES = ("events", "total", "highest", "last", "last_at")
_ASSIGNMENTS = ", ".join(f"{name} = excluded.{name}" for name in _FIGURES)
_REPLACE = f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {_ASSIGNMENTS}"
_IGNORE = "ON CONFLICT DO NOTHING"


def day_number(moment: datetime | date) -> int:
    """Return the day of a moment in UTC, as days since 1970."""
    day = moment.astimezone(UTC).date() if isinstance(moment, datetime) else moment
    return (day - _EPOCH).days


def consumed_units(
    tx: Transaction,
    customer_id: str,
    meter: Meter,
    spans: Sequence[TimeSpan],
    measured_days: Collection[datetime] = (),
) -> Decimal:
    """Return the units that a customer used within these spans of time.

    A day with a measurement counts by its measurement alone, for the span that has the end of the day. The
    measurements of `measured_days` count in addition.
    """
    days = usage_day.c
    if not spans:
        return ZERO
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    rows = tx.connection.execute(
        select(days.day, days.since, days.events, days.total, days.highest, days.last, days.measured)
        .where(
            days.customer_id == customer_id,
            days.meter_id == meter.id,
            days.day >= day_number(first),
            days.day <= day_number(last),
        )
        .order_by(days.day, days.since)
    ).all()
    # A measurement stands for the whole day, so the day's events no longer count.
    by_measurement = {row.day for row in rows if row.measured is not None}
    # Measurements are assigned by whole days, events by the microsecond.
    whole = [(day_number(start), day_number(end)) for start, end in spans]
    exact = [(to_microseconds(start), to_microseconds(end)) for start, end in spans]
    more = {day_number(day) for day in measured_days}
    measured = [
        row
        for row in rows
        if row.measured is not None
        and (row.day in more or any(start <= row.day < end for start, end in whole))
    ]
    counted = [
        row
        for row in rows
        if row.day not in by_measurement and any(start <= row.since < end for start, end in exact)
    ]
    return _figure(tx, customer_id, meter, measured, counted)


def _figure(
    tx: Transaction, customer_id: str, meter: Meter, measured: Sequence[Any], counted: Sequence[Any]
) -> Decimal:
    """Return the meter's figure of measured days, and of rows of days without a measurement."""
    figures = [row.measured for row in measured]
    match meter.aggregation_method:
        case AggregationMethod.COUNT:
            return exact_sum([*figures, *(Decimal(row.events) for row in counted)])
        case AggregationMethod.SUM:
            return exact_sum([*figures, *(row.total for row in counted)])
        case AggregationMethod.MAX:
            return max([*figures, *(row.highest for row in counted if row.highest is not None)], default=ZERO)
        case AggregationMethod.LAST:
            # A measurement has the time of its row: events of a later day come after it.
            lasts = [(row.since, row.measured) for row in measured]
            lasts += [(row.since, row.last) for row in counted if row.last is not None]
            # By time, not by order of arrival: events may arrive late.
            return max(lasts, default=(0, ZERO))[1]
        case AggregationMethod.UNIQUE:
            return exact_sum([*figures, _instances(tx, customer_id, meter, [row.since for row in counted])])


def _instances(tx: Transaction, customer_id: str, meter: Meter, since: list[int]) -> Decimal:
    """Return the number of distinct instances in these rows."""
    seen = usage_instance.c
    # Distinct over all rows: a value used on two days counts once.
    count = tx.connection.execute(
        select(func.count(seen.instance.distinct())).where(
            seen.customer_id == customer_id, seen.meter_id == meter.id, seen.since.in_(since)
        )
    ).scalar_one()
    return Decimal(count)


@dataclass(slots=True)
class _Tally:
    values: list[Decimal] = field(default_factory=list)
    instances: set[str] = field(default_factory=set)
    last: Decimal | None = None
    last_at: int | None = None


class UsageRollup:
    """Collects the contributions of a batch and adds them to daily usage: one read and one write."""

    def __init__(self) -> None:
        self._tallies: defaultdict[UsageKey, _Tally] = defaultdict(_Tally)

    def add(self, key: UsageKey, contribution: Contribution, at: int) -> None:
        """Add a contribution at the microsecond `at`; of two at one time, the later call wins as `last`."""
        value = contribution.value
        # Without a value the event is stored, but changes no figure.
        if value is None:
            return
        tally = self._tallies[key]
        tally.values.append(value)
        # `>=`: of two events at one moment the one that arrived later is the last.
        if tally.last_at is None or at >= tally.last_at:
            tally.last, tally.last_at = value, at
        if contribution.instance is not None:
            tally.instances.add(value_identity(contribution.instance) or "")

    def write(self, tx: Transaction) -> set[UsageKey]:
        """Add the contributions to the stored rows, and return the keys of the changed rows."""
        stored = select_by_keys(tx.connection, usage_day, list(self._tallies))
        there = {(row.customer_id, row.meter_id, row.day, row.since): row for row in stored}
        rows = [(*key, *_updated_figures(tally, there.get(key))) for key, tally in self._tallies.items()]
        insert_rows(tx.connection, usage_day, (*_KEY, *_FIGURES), rows, _REPLACE)
        # One row for each distinct value: a number alone could not be merged with another batch's.
        seen = [(*key, instance) for key, tally in self._tallies.items() for instance in tally.instances]
        insert_rows(tx.connection, usage_instance, (*_KEY, "instance"), seen, _IGNORE)
        return set(self._tallies)


def _updated_figures(tally: _Tally, there: Any) -> tuple[int, str, str, str, int]:
    """Return the new figures, in the order of _FIGURES, of a row that was `there`, or None."""
    events, total, highest = len(tally.values), exact_sum(tally.values), max(tally.values)
    last, last_at = str(tally.last), tally.last_at or 0
    if there is None:
        return events, str(total), str(highest), last, last_at
    # Null in a row that only a measurement has created.
    if there.highest is not None:
        highest = max(Decimal(there.highest), highest)
    if there.last_at is not None and there.last_at > last_at:
        last, last_at = there.last, there.last_at
    return there.events + events, str(exact_sum([Decimal(there.total), total])), str(highest), last, last_at


def cuts_by_day(
    tx: Transaction, customer_ids: Collection[str], days: Collection[int]
) -> Mapping[tuple[str, int], Sequence[int]]:
    """Return these customers' cuts from the first to the last of these days, by customer and day, rising."""
    found: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    rows = tx.connection.execute(
        select(usage_cut.c.customer_id, usage_cut.c.at)
        .where(
            in_texts(usage_cut.c.customer_id, customer_ids),
            usage_cut.c.at >= from_microseconds(min(days) * MICROSECONDS_PER_DAY),
            # `<=` the last microsecond: the end of datetime's last day cannot be represented.
            usage_cut.c.at <= from_microseconds((max(days) + 1) * MICROSECONDS_PER_DAY - 1),
        )
        .order_by(usage_cut.c.at)
    )
    for row in rows:
        at = to_microseconds(row.at)
        found[row.customer_id, at // MICROSECONDS_PER_DAY].append(at)
    return found


def customer_cuts(tx: Transaction, customer_id: str) -> Mapping[int, Sequence[int]]:
    """Return all cuts of a customer, by day, rising."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    rows = tx.connection.execute(
        select(usage_cut.c.at).where(usage_cut.c.customer_id == customer_id).order_by(usage_cut.c.at)
    )
    for row in rows:
        at = to_microseconds(row.at)
        found[at // MICROSECONDS_PER_DAY].append(at)
    return found


def part_start(of_day: Sequence[int], at: int) -> int:
    """Return the start of the part of the day that contains the microsecond `at`."""
    return max(
        (each for each in of_day if each <= at), default=at // MICROSECONDS_PER_DAY * MICROSECONDS_PER_DAY
    )


def add_cuts(tx: Transaction, customer_id: str, moments: Iterable[datetime | None]) -> None:
    """Split the days at these moments, and count both parts separately; also usage that is stored."""
    for each in sorted({one for one in moments if one is not None}):
        at = to_microseconds(each)
        # Midnight separates days anyway.
        if at % MICROSECONDS_PER_DAY == 0:
            continue
        known = select(usage_cut.c.at).where(usage_cut.c.customer_id == customer_id, usage_cut.c.at == each)
        if tx.connection.execute(known).first() is None:
            tx.connection.execute(insert(usage_cut).values(customer_id=customer_id, at=each))
            _recount_day(tx, customer_id, at // MICROSECONDS_PER_DAY)


def _recount_day(tx: Transaction, customer_id: str, day: int) -> None:
    """Rebuild the rows of a day from its events. Measurements stay."""
    of_day = (usage_day.c.customer_id == customer_id) & (usage_day.c.day == day)
    if tx.connection.execute(select(usage_day.c.day).where(of_day).limit(1)).first() is None:
        return
    measured = usage_day.c.measured.is_not(None)
    # Rows with a measurement stay, with their event figures reset below.
    tx.connection.execute(delete(usage_day).where(of_day, ~measured))
    tx.connection.execute(
        update(usage_day).where(of_day).values(events=0, total=ZERO, highest=None, last=None, last_at=None)
    )
    tx.connection.execute(
        delete(usage_instance).where(usage_instance.c.customer_id == customer_id, usage_instance.c.day == day)
    )
    rows = tx.connection.execute(
        select(event.c.at, event.c.meter_ids, event.c.body)
        .where(
            event.c.customer_id == customer_id,
            event.c.at >= from_microseconds(day * MICROSECONDS_PER_DAY),
            event.c.at < from_microseconds((day + 1) * MICROSECONDS_PER_DAY),
            event.c.meter_ids != "",
        )
        .order_by(event.c.at, event.c.seq)
    ).all()
    of_day_cuts = cuts_by_day(tx, [customer_id], [day]).get((customer_id, day), ())
    known: dict[str, CompiledMeter] = {}
    rollups = UsageRollup()
    for row in rows:
        at = to_microseconds(row.at)
        data = UsageEvent.from_json(row.body.encode()).data or {}
        for meter_id in row.meter_ids.split():
            if meter_id not in known:
                known[meter_id] = CompiledMeter(meters.METERS.get(tx, meter_id))
            contribution = known[meter_id].contribution(data)
            if contribution is not None:
                rollups.add((customer_id, meter_id, day, part_start(of_day_cuts, at)), contribution, at)
    rollups.write(tx)
