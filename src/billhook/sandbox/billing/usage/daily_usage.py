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

from sqlalchemy import BigInteger, ColumnElement, delete, func, select, type_coerce, update
from sqlalchemy.dialects.sqlite import insert

from billhook.fields import strict_json
from billhook.sandbox.billing.usage import meters
from billhook.sandbox.billing.usage.meters import AggregationMethod, CompiledMeter, Meter, value_identity
from billhook.sandbox.billing.usage.money import ZERO, exact_sum
from billhook.sandbox.storage.columns import from_microseconds, in_texts, to_microseconds
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.tables import event, invoice, usage_cut, usage_day, usage_instance

MICROSECONDS_PER_DAY = 86_400_000_000
MIN_MICROSECOND = to_microseconds(datetime.min.replace(tzinfo=UTC))
TimeSpan = tuple[datetime, datetime]
"""From a moment to before another."""
UsageKey = tuple[str, str, int, int]
"""Customer, meter, day, and the microsecond at which the day or its part begins."""
_EPOCH = date(1970, 1, 1)
_KEY = ("customer_id", "meter_id", "day", "since")
_REPLACE_FIGURES = """
INSERT INTO usage_day
(customer_id, meter_id, day, since, after_invoice, events, total, highest, last, last_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET after_invoice = excluded.after_invoice, events = excluded.events,
total = excluded.total, highest = excluded.highest, last = excluded.last, last_at = excluded.last_at
"""


def day_number(moment: datetime | date) -> int:
    """Return the day of a moment in UTC, as days since 1970."""
    day = moment.astimezone(UTC).date() if isinstance(moment, datetime) else moment
    return (day - _EPOCH).days


def day_start(day: int) -> datetime:
    """Return the first moment of a day that is counted since 1970."""
    return from_microseconds(day * MICROSECONDS_PER_DAY)


def day_end(day: int) -> datetime:
    """Return the last microsecond of a day: the end of the calendar's last day cannot be represented."""
    return from_microseconds((day + 1) * MICROSECONDS_PER_DAY - 1)


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
    rows = tx.execute(
        select(days.day, days.since, days.events, days.total, days.highest, days.last, days.measured)
        .where(
            days.customer_id == customer_id,
            days.meter_id == meter.id,
            days.day.between(day_number(first), day_number(last)),
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
    distinct = 0
    if meter.aggregation_method is AggregationMethod.UNIQUE:
        seen = usage_instance.c
        of_rows = seen.since.in_([row.since for row in counted])
        # Distinct over all rows: a value used on two days counts once.
        query = select(func.count(seen.instance.distinct())).where(
            seen.customer_id == customer_id, seen.meter_id == meter.id, of_rows
        )
        distinct = tx.scalars(query).one()
    return figure(meter.aggregation_method, measured, counted, distinct)


def figure(
    method: AggregationMethod, measured: Sequence[Any], counted: Sequence[Any], distinct: int
) -> Decimal:
    """Return the figure of a meter of this method: of measured days, and of rows of other days.

    `distinct` is the number of distinct values in those rows.
    """
    figures = [row.measured for row in measured]
    match method:
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
            return exact_sum([*figures, Decimal(distinct)])


@dataclass(slots=True)
class _Tally:
    values: list[Decimal] = field(default_factory=list)
    instances: set[str] = field(default_factory=set)
    last: Decimal | None = None
    last_at: int = MIN_MICROSECOND


class UsageBatch:
    """Collects the contributions of a batch and adds them to daily usage: one read and one write."""

    def __init__(self) -> None:
        self._tallies: defaultdict[UsageKey, _Tally] = defaultdict(_Tally)

    def add(
        self,
        customer_id: str,
        at: int,
        data: Mapping[str, Any],
        counting: Iterable[CompiledMeter],
        cuts: Mapping[tuple[str, int], Sequence[int]],
    ) -> list[str]:
        """Add an event at the microsecond `at`, and return the ids of the meters that it has a value for.

        If two events have the same time, the later call sets `last`.
        """
        day = at // MICROSECONDS_PER_DAY
        since = day * MICROSECONDS_PER_DAY
        # A cut splits a day between two billing cycles, so the row depends on the event's moment.
        if cuts:
            since = max((cut for cut in cuts.get((customer_id, day), ()) if cut <= at), default=since)
        counted = []
        for meter in counting:
            value, instance = meter.contribution(data)
            # Without a value the event is stored, but changes no figure.
            if value is None:
                continue
            counted.append(meter.id)
            tally = self._tallies[customer_id, meter.id, day, since]
            tally.values.append(value)
            # `>=`: of two events with the same time, the one that arrived later is the last.
            if at >= tally.last_at:
                tally.last, tally.last_at = value, at
            if instance is not None:
                tally.instances.add(value_identity(instance) or "")
        return counted

    def add_stored(self, tx: Transaction, owner_id: str, *where: ColumnElement[bool]) -> None:
        """Add the contributions of stored events that match, as usage of this customer."""
        rows = tx.execute(
            select(type_coerce(event.c.at, BigInteger), event.c.meter_ids, event.c.body)
            .where(event.c.meter_ids != "", *where)
            .order_by(event.c.seq)
        ).all()
        cuts = cuts_by_day(tx, [owner_id], [at // MICROSECONDS_PER_DAY for at, *_ in rows])
        known = {meter.id: CompiledMeter(meter) for meter in meters.METERS.all(tx)} if rows else {}
        for at, meter_ids, body in rows:
            # Parsed strictly, as at ingestion: a float would change the figures.
            sent: Any = strict_json.loads(body.encode())
            counting = [known[meter_id] for meter_id in meter_ids.split()]
            self.add(owner_id, at, sent.get("data") or {}, counting, cuts)

    def write(self, tx: Transaction) -> set[UsageKey]:
        """Add the contributions to the stored rows, and return the keys of the changed rows."""
        if not self._tallies:
            return set()
        owners, days = {key[0] for key in self._tallies}, [key[2] for key in self._tallies]
        of = usage_day.c
        rows = tx.execute(
            select(usage_day).where(in_texts(of.customer_id, owners), of.day.between(min(days), max(days)))
        )
        stored = {(row.customer_id, row.meter_id, row.day, row.since): row for row in rows}
        newest = newest_invoice(tx)
        changed = [
            (*key, newest, *_updated_figures(tally, stored.get(key))) for key, tally in self._tallies.items()
        ]
        # The driver's own executemany: SQLAlchemy would convert each value.
        tx.connection.exec_driver_sql(_REPLACE_FIGURES, changed)
        # One row for each distinct value: a number alone could not be merged with another batch's.
        seen = [
            {**_columns(key), "instance": instance}
            for key, tally in self._tallies.items()
            for instance in tally.instances
        ]
        if seen:
            tx.execute(insert(usage_instance).on_conflict_do_nothing(), seen)
        return set(self._tallies)


def _updated_figures(tally: _Tally, stored: Any) -> tuple[Any, ...]:
    """Return the figures of a row that was `stored`, or None, with the tally added."""
    events, total, highest = len(tally.values), exact_sum(tally.values), max(tally.values)
    last, last_at = tally.last, tally.last_at
    if stored is not None:
        events += stored.events
        total = exact_sum([stored.total, total])
        # Null in a row that only a measurement has created.
        if stored.highest is not None:
            highest = max(stored.highest, highest)
        if stored.last_at is not None and stored.last_at > last_at:
            last, last_at = stored.last, stored.last_at
    return events, str(total), str(highest), str(last), last_at


def _columns(key: UsageKey) -> dict[str, Any]:
    return dict(zip(_KEY, key, strict=True))


def newest_invoice(tx: Transaction) -> int:
    """Return the serial number of the newest invoice; 0 without any."""
    return tx.scalar(select(func.max(invoice.c.seq))) or 0


def set_measured(tx: Transaction, row: UsageKey, value: Decimal) -> None:
    """Store the measured figure of a day in the row with which the day begins."""
    changes = {"measured": value, "after_invoice": newest_invoice(tx)}
    # Events of the day may have created the row, whose figures stay.
    made = insert(usage_day).values(**_columns(row), **changes)
    tx.execute(made.on_conflict_do_update(set_=changes))


def mark_changed(
    tx: Transaction, customer_id: str, first: datetime, last: datetime | None = None
) -> list[UsageKey]:
    """Mark the rows from the day of `first` to that of `last` as changed, and return their keys.

    For usage that belongs to another contract than before.
    """
    days = usage_day.c
    which = [days.customer_id == customer_id, days.day >= day_number(first)]
    if last is not None:
        which.append(days.day <= day_number(last))
    changed = update(usage_day).where(*which).values(after_invoice=newest_invoice(tx))
    key = (days.customer_id, days.meter_id, days.day, days.since)
    return [(row[0], row[1], row[2], row[3]) for row in tx.execute(changed.returning(*key))]


def first_change(tx: Transaction, customer_id: str, invoice_number: int, end: datetime) -> datetime | None:
    """Return when the first usage was, before `end`, that changed after the invoice with this number."""
    days = usage_day.c
    first = select(func.min(days.since)).where(
        days.customer_id == customer_id,
        days.after_invoice >= invoice_number,
        days.since < to_microseconds(end),
    )
    since = tx.scalar(first)
    return None if since is None else from_microseconds(since)


def changed_after(customer_id: ColumnElement[str], invoice_number: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a customer's usage changed after an invoice with this serial number."""
    days = usage_day.c
    return (
        select(days.day).where(days.customer_id == customer_id, days.after_invoice >= invoice_number).exists()
    )


def cuts_by_day(
    tx: Transaction, customer_ids: Collection[str], days: Collection[int]
) -> Mapping[tuple[str, int], Sequence[int]]:
    """Return these customers' cuts from the first to the last of these days, by customer and day, rising."""
    found: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    if not days:
        return found
    rows = tx.execute(
        select(usage_cut.c.customer_id, usage_cut.c.at)
        .where(
            in_texts(usage_cut.c.customer_id, customer_ids),
            usage_cut.c.at.between(day_start(min(days)), day_end(max(days))),
        )
        .order_by(usage_cut.c.at)
    )
    for row in rows:
        at = to_microseconds(row.at)
        found[row.customer_id, at // MICROSECONDS_PER_DAY].append(at)
    return found


def add_cuts(tx: Transaction, customer_id: str, moments: Iterable[datetime | None]) -> None:
    """Split the days at these moments, and count both parts separately; also usage that is stored."""
    for each in sorted({one for one in moments if one is not None}):
        at = to_microseconds(each)
        # Midnight separates days anyway.
        if at % MICROSECONDS_PER_DAY == 0:
            continue
        if not tx.any(usage_cut, usage_cut.c.customer_id == customer_id, usage_cut.c.at == each):
            tx.execute(insert(usage_cut).values(customer_id=customer_id, at=each))
            _recount_day(tx, customer_id, at // MICROSECONDS_PER_DAY)


def _recount_day(tx: Transaction, customer_id: str, day: int) -> None:
    """Rebuild the rows of a day from its events. Measurements stay."""
    of_day = (usage_day.c.customer_id == customer_id) & (usage_day.c.day == day)
    if not tx.any(usage_day, of_day):
        return
    measured = usage_day.c.measured.is_not(None)
    # Rows with a measurement stay, with their event figures reset below.
    tx.execute(delete(usage_day).where(of_day, ~measured))
    tx.execute(
        update(usage_day).where(of_day).values(events=0, total=ZERO, highest=None, last=None, last_at=None)
    )
    tx.execute(
        delete(usage_instance).where(usage_instance.c.customer_id == customer_id, usage_instance.c.day == day)
    )
    usage = UsageBatch()
    within = event.c.at.between(day_start(day), day_end(day))
    usage.add_stored(tx, customer_id, event.c.customer_id == customer_id, within)
    usage.write(tx)
