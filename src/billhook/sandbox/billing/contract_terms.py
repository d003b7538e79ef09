"""How long a contract's cycles and its terms are: the calendar's part of it, without a database.

Source: spec, "Resources and their fields", Contract and ContractProduct, scheduling; Plan, billingData.
What a new contract says of them is read in `contract_offer`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from billhook.resources import Commitment, Contract, Duration
from billhook.resources.base import WRITE_ONLY
from billhook.sandbox.periods import Period, months_after
from billhook.wire.fields import Flag, Integer, Moment

__all__ = [
    "KeptContract",
    "billing_day_anchor",
    "calendar_anchor",
    "commitment_start",
    "cycle_at",
    "cycles_before",
    "cycles_in",
    "days_of",
    "is_for_several_cycles",
    "next_end",
    "past_cycles",
    "period_of",
    "renews",
]

_LONGEST_DAYS = 36_525
"""A hundred years: no cycle is longer."""


class KeptContract(Contract, register=False):
    """A contract with what the sandbox knows of it besides; it does not show it."""

    cycle_months: Annotated[Integer, WRITE_ONLY, Field(description="Months of a cycle.")] = 0
    cycle_days: Annotated[Integer, WRITE_ONLY, Field(description="Days of a cycle.")] = 0
    cycle_anchor: Annotated[
        Moment | None, WRITE_ONLY, Field(description="What cycles are counted from; else startDate.")
    ] = None
    cycle_billing_day: Annotated[
        Integer, WRITE_ONLY, Field(description="The day of a month on which cycles begin; 0 if none is set.")
    ] = 0
    first_end_date: Annotated[
        Moment | None, WRITE_ONLY, Field(description="When it ended before it was ever renewed.")
    ] = None
    pro_rates: Annotated[Flag, WRITE_ONLY, Field(description="Does a short cycle cost less?")] = False
    payment_days: Annotated[
        Integer | None, WRITE_ONLY, Field(description="Days to pay in, by its payment term.")
    ] = None


def calendar_anchor(start: datetime, period: Period) -> datetime:
    """The begin of the calendar's period that `start` is in: what cycles by the calendar are counted from.

    Of months, quarters, years and the like the first midnight; of weeks Monday's; of days that day's.
    """
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    if period.months:
        return months_after(midnight.replace(day=1), -((start.year * 12 + start.month - 1) % period.months))
    return midnight - timedelta(days=midnight.weekday() if period.time.days % 7 == 0 else 0)


def billing_day_anchor(start: datetime, day: int) -> datetime:
    """The midnight of the last such day of a month that is not after `start`."""
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    anchor = _on_day(midnight, day)
    return anchor if anchor <= start else _on_day(months_after(midnight, -1), day)


def cycle_at(contract: KeptContract, moment: datetime) -> tuple[datetime, datetime]:
    """Begin and end of the cycle that `moment` is in; the first, if that is to come.

    Cycles are counted from startDate: one of a 31st ends on the last day of a shorter month, and the next
    on a 31st again. By the calendar or a billing day, the first is the rest of its period. The last cycle of
    a contract that is not renewed ends with it.
    """
    begin, end = _whole_cycle(contract, moment)
    begin = max(begin, contract.start_date)
    if contract.end_date is not None and not renews(contract):
        end = min(end, contract.end_date)
    return begin, end


def past_cycles(contract: KeptContract, now: datetime, most: int) -> list[tuple[datetime, datetime]]:
    """The cycles that are over, oldest first: at most so many and one more."""
    found: list[tuple[datetime, datetime]] = []
    begin, end = cycle_at(contract, contract.start_date)
    while begin < end <= now and len(found) <= most:
        found.append((begin, end))
        if end == contract.end_date and not renews(contract):
            break  # the moment of its end lies in its last cycle still
        begin, end = cycle_at(contract, end)
    return found


def cycles_in(commitment: Commitment | None, period: Period) -> int:
    """How many cycles of `period` a commitment is for: one, if it has no period of its own.

    0 if it is not for a whole number of them. Source: spec, "Resources and their fields", Commitment.
    """
    duration = commitment.scheduling.duration if commitment and commitment.scheduling else None
    if duration is None:
        return 1
    own = period_of(duration)
    if own is None or bool(own.months) != bool(period.months):
        return 0
    if period.months:
        return 0 if own.months % period.months else own.months // period.months
    return 0 if own.time % period.time else own.time // period.time


def commitment_start(contract: KeptContract, commitment: Commitment | None, start: datetime) -> datetime:
    """When the commitment's period began that the cycle from `start` lies in: the begin of a cycle.

    Periods are counted from the first cycle.
    """
    cycles = cycles_in(commitment, _period_of(contract))
    if cycles <= 1:
        return start
    count = cycles_before(contract, start)
    return max(_border(contract, count - count % cycles), contract.start_date)


def is_for_several_cycles(contract: KeptContract, commitment: Commitment | None) -> bool:
    """Is the commitment's period longer than a cycle of its contract?"""
    return cycles_in(commitment, _period_of(contract)) > 1


def period_of(duration: Duration) -> Period | None:
    """So many Days, Weeks, Months or Years, from a day to a century; None for anything else."""
    days = {"Days": 1, "Weeks": 7, "Months": 31, "Years": 366}.get(duration.unit or "")
    value = duration.value
    if days is None or value is None or value != int(value) or not 1 <= value * days <= _LONGEST_DAYS:
        return None
    count = int(value)
    if duration.unit in ("Months", "Years"):
        return Period(months=count * (12 if duration.unit == "Years" else 1))
    return Period(time=timedelta(days=count * days))


def cycles_before(contract: KeptContract, moment: datetime) -> int:
    """How many cycles were over when the one began that `moment` is in."""
    period, anchor = _period_of(contract), contract.cycle_anchor or contract.start_date
    if period.months:
        apart = (moment.year - anchor.year) * 12 + moment.month - anchor.month
        count = apart // period.months
        if _border(contract, count) > moment:
            count -= 1
    else:
        count = (moment - anchor) // period.time
    return max(count, 0)


def days_of(contract: KeptContract, start: datetime, end: datetime) -> tuple[int, int]:
    """The days of the cycle from `start` to `end`, and those that it had if nothing cut it short.

    Days are counted as for usage: a cycle has the whole day on which it begins, and the next one has that
    on which it ends. So a day is charged to one cycle alone.
    """
    begin, finish = _whole_cycle(contract, start)
    whole = (finish.date() - begin.date()).days
    return min((end.date() - start.date()).days, whole), whole


def renews(contract: Contract) -> bool:
    """Does it go on when it ends? Source: spec, Contract, autoRenewContract: true when omitted."""
    return contract.auto_renew_contract is not False


def next_end(contract: KeptContract, now: datetime) -> datetime:
    """When it ends next, after `now`: its first term, once more or as often as it takes.

    A term of whole months is of so many months again, from startDate on; also where endDate is its last
    day or the last second of it, as from 2026-02-01 to 2027-01-31.
    """
    start, first_end = contract.start_date, contract.first_end_date
    if first_end is None or contract.end_date is None:
        raise ValueError("a contract without an end is not renewed")
    after = max(now, contract.end_date)
    months, short = _months_between(start, first_end)
    term = Period(months) if months else Period(time=first_end - start)
    if months:
        terms = ((after.year - start.year) * 12 + after.month - start.month) // months - 1
    else:
        terms = (after - start) // term.time
    terms = max(terms, 1)
    while (end := term.times(terms).after(start) - short) <= after:
        terms += 1
    return end


def _period_of(contract: KeptContract) -> Period:
    return Period(contract.cycle_months, timedelta(days=contract.cycle_days))


def _border(contract: KeptContract, count: int) -> datetime:
    """Where so many cycles are over, the first of them counted as a whole one."""
    moment = _period_of(contract).times(count).after(contract.cycle_anchor or contract.start_date)
    # What they are counted from may be the last of a short month: its day is not the billing day then.
    return _on_day(moment, contract.cycle_billing_day) if contract.cycle_billing_day else moment


def _whole_cycle(contract: KeptContract, moment: datetime) -> tuple[datetime, datetime]:
    count = cycles_before(contract, moment)
    return _border(contract, count), _border(contract, count + 1)


def _on_day(moment: datetime, day: int) -> datetime:
    """`moment`, on this day of its month; on the last, if that is shorter."""
    # Counted from a December, which has every day.
    return months_after(moment.replace(year=moment.year - 1, month=12, day=day), moment.month)


def _months_between(start: datetime, end: datetime) -> tuple[int, timedelta]:
    """Whole months, and how much before their end `end` is: a day at most. 0 months if it is not so."""
    latest = end + timedelta(days=1)
    months = (latest.year - start.year) * 12 + latest.month - start.month
    for count in (months, months - 1):
        if count > 0 and timedelta(0) <= (short := months_after(start, count) - end) <= timedelta(days=1):
            return count, short
    return 0, timedelta(0)
