"""What a new contract says: by itself, else by its products, else by its plan, else as is usual.

Source: spec, "Resources and their fields", Contract, ContractProduct, Plan. The values of paymentTerm and the
unit of a plan's duration are not shown: `Net30` and months are the sandbox's choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from billhook.resources import BillingData, ContractProduct, Duration, NewContract, Plan
from billhook.sandbox.billing.contract_terms import billing_day_anchor, calendar_anchor, period_of
from billhook.sandbox.periods import Period, months_after
from billhook.sandbox.refusals import invalid_request

__all__ = ["Offer", "check_billing", "kept", "period_of_plan", "period_of_products"]

_MONTHLY = Period(months=1)
_INTERVALS = {"Monthly": 1, "Quarterly": 3, "Yearly": 12}
_LONGEST_MONTHS = 1200
_LONGEST_MONTH = 31
_NET = re.compile(r"Net([0-9]{1,4})")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Offer:
    """What a new contract is about: its plan, if it has one, and what it sells by which cycles."""

    plan: Plan | None
    products: Sequence[ContractProduct]
    period: Period
    is_calendar_aligned: bool

    @property
    def billing(self) -> BillingData:
        """What the plan says of billing; nothing, without one."""
        return (self.plan and self.plan.billing_data) or BillingData()


def kept(given: NewContract, offer: Offer) -> dict[str, Any]:
    """What stands for what was left out, and what the sandbox keeps for itself; in the wire's spelling."""
    plan, billing, period = offer.plan, offer.billing, offer.period
    end, anchor, day = given.end_date, None, 0
    if end is None and billing.duration is not None:
        end = months_after(given.start_date, int(billing.duration))
    if offer.is_calendar_aligned:
        anchor = calendar_anchor(given.start_date, period)
    elif period.months and (day := _billing_day(offer)):
        anchor = billing_day_anchor(given.start_date, day)
    # Not by its attribute: reading a deprecated field warns.
    pro_rates = _first(vars(given)["should_pro_rate_invoices"], billing.pro_rated, False)
    return {
        "name": given.name or (plan.name if plan else None),
        "endDate": end,
        "autoRenewContract": _first(given.auto_renew_contract, billing.auto_renewal, True),
        "cycleMonths": period.months,
        "cycleDays": period.time.days,
        "cycleAnchor": anchor,
        "cycleBillingDay": day,
        "firstEndDate": end,
        "shouldProRateInvoices": pro_rates,
        "proRates": pro_rates,
        "paymentDays": _payment_days(offer),
    }


def period_of_products(
    products: Iterable[tuple[str, ContractProduct]], of_plan: Period | None = None
) -> Period:
    """The cycle of a contract with these: the duration that they have, else that of the plan, else a month.

    Refused are products of different durations: a price is charged once a cycle, so that of a year would be
    charged each month. Each comes with its path in the request, for what is refused.
    """
    period = of_plan
    for where, product in products:
        duration = product.scheduling.duration if product.scheduling else None
        if duration is None:
            continue
        own = _period(duration, f"{where}.scheduling.duration")
        if period not in (None, own):
            raise invalid_request(
                "the products of a contract or plan have the same billing cycle: give this one the duration "
                "of the others, or a contract of its own",
                f"{where}.scheduling.duration",
            )
        period = own
    return period or _MONTHLY


def period_of_plan(billing: BillingData | None) -> Period:
    """The cycle that a plan says: Monthly, Quarterly or Yearly; a month if it says none of them."""
    months = _INTERVALS.get(billing.billing_interval or "") if billing else None
    return _MONTHLY if months is None else Period(months=months)


def check_billing(billing: BillingData, where: str) -> None:
    """Refuse a plan's day or duration that is none; `where` is the path of `billing` in the request."""
    day = billing.billing_date.day_of_month if billing.billing_date else None
    if day is not None and not 1 <= day <= 31:
        raise invalid_request("dayOfMonth is from 1 to 31", f"{where}.billingDate.dayOfMonth")
    months = billing.duration
    if months is not None and (months != int(months) or not 1 <= months <= _LONGEST_MONTHS):
        raise invalid_request(
            "duration is a whole number of months from 1, and at most a century", f"{where}.duration"
        )


def _billing_day(offer: Offer) -> int:
    """That of the first product that has one, else the plan's; 0 if there is none.

    Any from 1 is taken: what no month has is each month's last day, as 31 is in February.
    """
    of_products = (each.scheduling.billing_day for each in offer.products if each.scheduling)
    date = offer.billing.billing_date
    return min(_first(*of_products, date.day_of_month if date else None, 0), _LONGEST_MONTH)


def _payment_days(offer: Offer) -> int | None:
    """The days of the first payment term that is understood: of a product, else of the plan."""
    terms = [*(each.payment_term for each in offer.products), offer.billing.payment_term]
    understood = (_NET.fullmatch(term or "") for term in terms)
    return next((int(term[1]) for term in understood if term), None)


def _first(*values: T | None) -> T:
    """The first that was given; the last one always is."""
    return next(value for value in values if value is not None)


def _period(duration: Duration, where: str) -> Period:
    if duration.unit not in ("Days", "Weeks", "Months", "Years"):
        raise invalid_request("unit is Days, Weeks, Months or Years", f"{where}.unit")
    period = period_of(duration)
    if period is None:
        raise invalid_request(
            "value is a whole number from 1, and a cycle at most a century", f"{where}.value"
        )
    return period
