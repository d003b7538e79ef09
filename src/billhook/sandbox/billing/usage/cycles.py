"""Billing cycles and terms of contracts: calendar arithmetic alone, without a database.

Source: spec, "Resources and their fields", Contract and ContractProduct, scheduling; Plan, billingData.
`new_contracts` reads them from a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, time, timedelta
from typing import Annotated

from pydantic import Field, StrictBool, StrictStr

from billhook.fields.types import Integer, ListOf, UtcDatetime
from billhook.resources import WRITE_ONLY, Commitment, Contract, Duration
from billhook.sandbox.clock import CalendarDuration, add_months

LONGEST_DAYS = 36_525
"""The longest cycle: a century."""
DURATION_UNITS: Mapping[str, int] = {"Days": 1, "Weeks": 7, "Months": 31, "Years": 366}
"""The days of each unit: of the longest month and year, so that no cycle is longer."""


class ContractRecord(Contract, register=False):
    """A contract as it is stored, with fields that the API does not show."""

    cycle_months: Annotated[Integer, WRITE_ONLY] = 0
    """Months of a billing cycle."""
    cycle_days: Annotated[Integer, WRITE_ONLY] = 0
    """Days of a billing cycle."""
    cycle_anchor: Annotated[UtcDatetime | None, WRITE_ONLY] = None
    """The moment that billing cycles are counted from; startDate if null."""
    cycle_billing_day: Annotated[Integer, WRITE_ONLY] = 0
    """The day of the month on which billing cycles begin; 0 if none is set."""
    first_end_date: Annotated[UtcDatetime | None, WRITE_ONLY] = None
    """The end of the first term, before any renewal."""
    pro_rates: Annotated[StrictBool, WRITE_ONLY] = False
    """Whether fees of a shortened cycle are pro-rated."""
    payment_days: Annotated[Integer | None, WRITE_ONLY] = None
    """Days until payment is due, from the payment term."""
    billed_in: Annotated[StrictStr, WRITE_ONLY] = ""
    """The currency that was agreed: the contract's, else the customer's when it was made or activated."""
    price_types: Annotated[ListOf[StrictStr], WRITE_ONLY] = Field(default_factory=list)
    """The type of price that was agreed for each product, in the order of `contracts.sold_products`."""


def midnight(moment: datetime) -> datetime:
    """Return the first moment of this day."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def calendar_anchor(start: datetime, period: CalendarDuration) -> datetime:
    """Return the start of the calendar period that contains `start`.

    Calendar-aligned cycles are counted from it. For months, quarters and years it is their first midnight;
    for weeks Monday's; for days that day's.
    """
    day = midnight(start)
    if period.months:
        # Counted from January of the year 0, so that quarters and years begin in January.
        return add_months(day.replace(day=1), -((start.year * 12 + start.month - 1) % period.months))
    return day - timedelta(days=day.weekday() if period.time.days % 7 == 0 else 0)


def billing_day_anchor(start: datetime, day: int) -> datetime:
    """Return the midnight of the last such day of a month that is not after `start`."""
    anchor = _on_day(midnight(start), day)
    return anchor if anchor <= start else _on_day(add_months(midnight(start), -1), day)


def cycle_at(contract: ContractRecord, moment: datetime) -> tuple[datetime, datetime]:
    """Return start and end of the billing cycle that contains `moment`, or the first cycle before its start.

    Cycles are counted from startDate: one that starts on a 31st ends on the last day of a shorter month, and
    the next one on a 31st again. With a calendar anchor or a billing day, the first cycle is the rest of its
    period. The last cycle of a contract that is not renewed ends with the contract.
    """
    begin, end = _whole_cycle(contract, moment)
    # With an anchor before startDate, the first cycle is the rest of its period.
    begin = max(begin, contract.start_date)
    if contract.end_date is not None and not renews(contract):
        end = min(end, contract.end_date)
    return begin, end


def past_cycles(contract: ContractRecord, now: datetime, most: int) -> list[tuple[datetime, datetime]]:
    """Return the cycles that are over, oldest first: at most `most` + 1, so the caller can see the excess."""
    found: list[tuple[datetime, datetime]] = []
    begin, end = cycle_at(contract, contract.start_date)
    while begin < end <= now and len(found) <= most:
        found.append((begin, end))
        if end == contract.end_date and not renews(contract):
            break  # cycle_at() would return the last cycle again
        begin, end = cycle_at(contract, end)
    return found


def commitment_cycles(commitment: Commitment | None, period: CalendarDuration) -> int:
    """Return how many billing cycles of `period` a commitment lasts; 1 without a period of its own.

    0 if it is not a whole number of cycles. Source: spec, "Resources and their fields", Commitment.
    """
    duration = commitment.scheduling.duration if commitment and commitment.scheduling else None
    if duration is None:
        return 1
    own = duration_period(duration)
    # Months and days have no common multiple.
    if own is None or bool(own.months) != bool(period.months):
        return 0
    if period.months:
        return 0 if own.months % period.months else own.months // period.months
    return 0 if own.time % period.time else own.time // period.time


def commitment_start(contract: ContractRecord, commitment: Commitment | None, start: datetime) -> datetime:
    """Return the start of the commitment's period that contains the cycle from `start`.

    Periods are counted from the first cycle, so the result is the start of a cycle.
    """
    cycles = commitment_cycles(commitment, cycle_period(contract))
    if cycles <= 1:
        return start
    count = completed_cycles(contract, start)
    return max(_cycle_start(contract, count - count % cycles), contract.start_date)


def duration_period(duration: Duration) -> CalendarDuration | None:
    """Return a duration in Days, Weeks, Months or Years as a period; None unless it is a day to a century."""
    days = DURATION_UNITS.get(duration.unit or "")
    value = duration.value
    if days is None or value is None or value != int(value) or not 1 <= value * days <= LONGEST_DAYS:
        return None
    count = int(value)
    if duration.unit in ("Months", "Years"):
        return CalendarDuration(months=count * (12 if duration.unit == "Years" else 1))
    return CalendarDuration(time=timedelta(days=count * days))


def completed_cycles(contract: ContractRecord, moment: datetime) -> int:
    """Return how many cycles were over when the cycle began that contains `moment`."""
    period, anchor = cycle_period(contract), contract.cycle_anchor or contract.start_date
    if period.months:
        apart = (moment.year - anchor.year) * 12 + moment.month - anchor.month
        count = apart // period.months
        # The months' difference ignores day and time: one cycle too many before the billing day.
        if _cycle_start(contract, count) > moment:
            count -= 1
    else:
        count = (moment - anchor) // period.time
    return max(count, 0)


def billed_days(
    contract: ContractRecord, start: datetime, end: datetime, *, with_last: bool, without_first: bool = False
) -> tuple[int, int]:
    """Return the days of the cycle from `start` to `end`, and its days if nothing had cut it short.

    The day on which a cycle begins is wholly its own, and the day on which it ends belongs to the next one:
    each day is charged to one cycle. `with_last` charges the day of `end` as well, where none follows;
    `without_first` leaves out the day of `start`, where another contract has charged it.
    """
    begin, finish = _whole_cycle(contract, start)
    whole = (finish.date() - begin.date()).days
    # At most the whole: the extra day at a contract's end must not charge more than the fee.
    return min((end.date() - start.date()).days + with_last - without_first, whole), whole


def ends_within_a_day(contract: ContractRecord, end: datetime) -> bool:
    """Return whether the contract ends at `end` without renewal, and not at midnight."""
    return end == contract.end_date and not renews(contract) and end.time() != time.min


def renews(contract: Contract) -> bool:
    """Return whether the contract is renewed at its end.

    Source: spec, Contract, autoRenewContract: true when omitted.
    """
    return contract.auto_renew_contract is not False


def next_end_date(contract: ContractRecord, now: datetime) -> datetime:
    """Return the next end date after `now`: the first term, repeated as often as necessary.

    A term of whole months is repeated in months from startDate; also where endDate is the term's last day or
    its last second, as from 2026-02-01 to 2027-01-31.
    """
    start, first_end = contract.start_date, contract.first_end_date
    if first_end is None or contract.end_date is None:
        raise ValueError("a contract without an end is not renewed")
    # A contract that is created late may have several terms behind it.
    after = max(now, contract.end_date)
    months, short = _months_between(start, first_end)
    term = CalendarDuration(months) if months else CalendarDuration(time=first_end - start)
    if months:
        terms = ((after.year - start.year) * 12 + after.month - start.month) // months - 1
    else:
        terms = (after - start) // term.time
    terms = max(terms, 1)
    while (end := term.times(terms).after(start) - short) <= after:
        terms += 1
    return end


def cycle_period(contract: ContractRecord) -> CalendarDuration:
    """Return the length of the contract's billing cycles."""
    return CalendarDuration(contract.cycle_months, timedelta(days=contract.cycle_days))


def _cycle_start(contract: ContractRecord, count: int) -> datetime:
    """Return the moment at which `count` cycles are over, the first of them counted as a whole one."""
    moment = cycle_period(contract).times(count).after(contract.cycle_anchor or contract.start_date)
    # In a short month the anchor is the last day, which is earlier than the billing day.
    return _on_day(moment, contract.cycle_billing_day) if contract.cycle_billing_day else moment


def _whole_cycle(contract: ContractRecord, moment: datetime) -> tuple[datetime, datetime]:
    count = completed_cycles(contract, moment)
    return _cycle_start(contract, count), _cycle_start(contract, count + 1)


def _on_day(moment: datetime, day: int) -> datetime:
    """Return `moment` on this day of its month, or on the last day of a shorter month."""
    # Counted from December, which has 31 days: add_months() then shortens the day to the target month.
    return add_months(moment.replace(year=moment.year - 1, month=12, day=day), moment.month)


def _months_between(start: datetime, end: datetime) -> tuple[int, timedelta]:
    """Return the whole months of a term, and how long before their end `end` is: at most a day.

    0 months if the term is not one of whole months.
    """
    latest = end + timedelta(days=1)
    months = (latest.year - start.year) * 12 + latest.month - start.month
    # The extra day may have carried `latest` into the next month.
    for count in (months, months - 1):
        if count > 0 and timedelta(0) <= (short := add_months(start, count) - end) <= timedelta(days=1):
            return count, short
    return 0, timedelta(0)
