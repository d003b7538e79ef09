"""How long a contract's cycles and its terms are: the calendar's part of it, without a database.

Source: spec, "Resources and their fields", Contract and ContractProduct, scheduling; Plan, billingData.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from billhook.resources import BillingData, Contract, ContractProduct, Duration
from billhook.resources.base import WRITE_ONLY
from billhook.sandbox.periods import Period, months_after
from billhook.sandbox.refusals import invalid_request
from billhook.wire.fields import Integer, Moment

__all__ = [
    "MONTHLY",
    "KeptContract",
    "calendar_anchor",
    "cycle_at",
    "cycles_before",
    "next_end",
    "period_of_plan",
    "period_of_products",
    "renews",
]

MONTHLY = Period(months=1)
_INTERVALS = {"Monthly": 1, "Quarterly": 3, "Yearly": 12}
_LONGEST_DAYS = 36_525
"""A hundred years: no cycle is longer."""


class KeptContract(Contract, register=False):
    """A contract with what the sandbox knows of it besides; it does not show it."""

    cycle_months: Annotated[Integer, WRITE_ONLY, Field(description="Months of a cycle.")] = 0
    cycle_days: Annotated[Integer, WRITE_ONLY, Field(description="Days of a cycle.")] = 0
    cycle_anchor: Annotated[
        Moment | None, WRITE_ONLY, Field(description="What cycles are counted from; else startDate.")
    ] = None
    first_end_date: Annotated[
        Moment | None, WRITE_ONLY, Field(description="When it ended before it was ever renewed.")
    ] = None


def period_of_products(products: Iterable[tuple[str, ContractProduct]]) -> Period:
    """The cycle of a contract with these: that of the first that has a duration, else a month.

    Each comes with its path in the request, for what is refused.
    """
    for where, product in products:
        duration = product.scheduling.duration if product.scheduling else None
        if duration is not None:
            return _period(duration, f"{where}.scheduling.duration")
    return MONTHLY


def period_of_plan(billing: BillingData | None) -> Period | None:
    """The cycle that a plan says: Monthly, Quarterly or Yearly; None if it says none of them."""
    months = _INTERVALS.get(billing.billing_interval or "") if billing else None
    return None if months is None else Period(months=months)


def calendar_anchor(start: datetime, period: Period) -> datetime:
    """The begin of the calendar's period that `start` is in: what cycles by the calendar are counted from.

    Of months, quarters, years and the like the first midnight; of weeks Monday's; of days that day's.
    """
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    if period.months:
        return months_after(midnight.replace(day=1), -((start.year * 12 + start.month - 1) % period.months))
    return midnight - timedelta(days=midnight.weekday() if period.time.days % 7 == 0 else 0)


def cycle_at(contract: KeptContract, moment: datetime) -> tuple[datetime, datetime]:
    """Begin and end of the cycle that `moment` is in; the first, if that is to come.

    Cycles are counted from startDate: one of a 31st ends on the last day of a shorter month, and the next
    on a 31st again. By the calendar, the first is the rest of its period. The last cycle of a contract that
    is not renewed ends with it.
    """
    period, anchor = _period_of(contract), contract.cycle_anchor or contract.start_date
    count = cycles_before(contract, moment)
    begin, end = period.times(count).after(anchor), period.times(count + 1).after(anchor)
    begin = max(begin, contract.start_date)
    if contract.end_date is not None and not renews(contract):
        end = min(end, contract.end_date)
    return begin, end


def cycles_before(contract: KeptContract, moment: datetime) -> int:
    """How many cycles were over when the one began that `moment` is in."""
    period, anchor = _period_of(contract), contract.cycle_anchor or contract.start_date
    if period.months:
        apart = (moment.year - anchor.year) * 12 + moment.month - anchor.month
        count = apart // period.months
        if period.times(count).after(anchor) > moment:
            count -= 1
    else:
        count = (moment - anchor) // period.time
    return max(count, 0)


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


def _months_between(start: datetime, end: datetime) -> tuple[int, timedelta]:
    """Whole months, and how much before their end `end` is: a day at most. 0 months if it is not so."""
    latest = end + timedelta(days=1)
    months = (latest.year - start.year) * 12 + latest.month - start.month
    for count in (months, months - 1):
        if count > 0 and timedelta(0) <= (short := months_after(start, count) - end) <= timedelta(days=1):
            return count, short
    return 0, timedelta(0)


def _period(duration: Duration, where: str) -> Period:
    days = {"Days": 1, "Weeks": 7, "Months": 31, "Years": 366}.get(duration.unit or "")
    if days is None:
        raise invalid_request("unit is Days, Weeks, Months or Years", f"{where}.unit")
    value = duration.value
    if value is None or value != int(value) or not 1 <= value * days <= _LONGEST_DAYS:
        raise invalid_request(
            "value is a whole number from 1, and a cycle at most a century", f"{where}.value"
        )
    count = int(value)
    if duration.unit in ("Months", "Years"):
        return Period(months=count * (12 if duration.unit == "Years" else 1))
    return Period(time=timedelta(days=count * days))
