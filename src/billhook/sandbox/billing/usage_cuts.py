"""Where what a customer uses begins to count for another cycle, within a day.

Usage is kept by the day. A cycle that ends at noon cuts its day in two, so that each part counts to its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import delete, insert, select, update

from billhook.resources import UsageEvent
from billhook.sandbox.billing import meters
from billhook.sandbox.billing.exact import ZERO
from billhook.sandbox.billing.judging import MICROSECONDS_A_DAY
from billhook.sandbox.billing.metering import Metering
from billhook.sandbox.billing.rollups import Rollups
from billhook.sandbox.storage.bulk import among
from billhook.sandbox.storage.tables.usage import event, usage_cut, usage_day, usage_instance
from billhook.sandbox.storage.types import microseconds, moment
from billhook.sandbox.transaction import Transaction

__all__ = ["cut", "cuts", "of_customer", "since"]


def cuts(
    tx: Transaction, customer_ids: Collection[str], days: Collection[int]
) -> Mapping[tuple[str, int], Sequence[int]]:
    """The cuts of these customers from the first of these days to the last, rising, by customer and day."""
    found: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    rows = tx.connection.execute(
        select(usage_cut.c.customer_id, usage_cut.c.at)
        .where(
            among(tx.connection, usage_cut.c.customer_id, customer_ids),
            usage_cut.c.at >= moment(min(days) * MICROSECONDS_A_DAY),
            # The end of the last day of all has no moment after it.
            usage_cut.c.at <= moment((max(days) + 1) * MICROSECONDS_A_DAY - 1),
        )
        .order_by(usage_cut.c.at)
    )
    for row in rows:
        at = microseconds(row.at)
        found[row.customer_id, at // MICROSECONDS_A_DAY].append(at)
    return found


def of_customer(tx: Transaction, customer_id: str) -> Mapping[int, Sequence[int]]:
    """All the cuts of a customer, rising, by day."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    rows = tx.connection.execute(
        select(usage_cut.c.at).where(usage_cut.c.customer_id == customer_id).order_by(usage_cut.c.at)
    )
    for row in rows:
        at = microseconds(row.at)
        found[at // MICROSECONDS_A_DAY].append(at)
    return found


def since(of_day: Sequence[int], at: int) -> int:
    """Where the part of a day begins that the microsecond `at` lies in."""
    return max((each for each in of_day if each <= at), default=at // MICROSECONDS_A_DAY * MICROSECONDS_A_DAY)


def cut(tx: Transaction, customer_id: str, moments: Iterable[datetime | None]) -> None:
    """Count apart from now on what lies before and after each of these moments; and what is there already."""
    for each in sorted({one for one in moments if one is not None}):
        at = microseconds(each)
        if at % MICROSECONDS_A_DAY == 0:
            continue
        known = select(usage_cut.c.at).where(usage_cut.c.customer_id == customer_id, usage_cut.c.at == each)
        if tx.connection.execute(known).first() is None:
            tx.connection.execute(insert(usage_cut).values(customer_id=customer_id, at=each))
            _count_anew(tx, customer_id, at // MICROSECONDS_A_DAY)


def _count_anew(tx: Transaction, customer_id: str, day: int) -> None:
    """Make the rows of a day again, of its events; measurements stay."""
    of_day = (usage_day.c.customer_id == customer_id) & (usage_day.c.day == day)
    if tx.connection.execute(select(usage_day.c.day).where(of_day).limit(1)).first() is None:
        return
    measured = usage_day.c.measured.is_not(None)
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
            event.c.at >= moment(day * MICROSECONDS_A_DAY),
            event.c.at < moment((day + 1) * MICROSECONDS_A_DAY),
            event.c.meter_ids != "",
        )
        .order_by(event.c.at, event.c.seq)
    ).all()
    of_day_cuts = cuts(tx, [customer_id], [day]).get((customer_id, day), ())
    known: dict[str, Metering] = {}
    rollups = Rollups()
    for row in rows:
        at = microseconds(row.at)
        data = UsageEvent.from_json(row.body.encode()).data or {}
        for meter_id in row.meter_ids.split():
            if meter_id not in known:
                known[meter_id] = Metering(meters.METERS.get(tx, meter_id))
            contribution = known[meter_id].contribution(data)
            if contribution is not None:
                rollups.add((customer_id, meter_id, day, since(of_day_cuts, at)), contribution, at)
    rollups.write(tx)
