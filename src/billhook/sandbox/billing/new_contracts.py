"""New contracts: validate the request, and complete it from its plan, its products and the defaults.

What a plan gives is used as is. What is left out is taken from the products, else from the defaults.
Source: spec, "Resources and their fields", Contract, ContractProduct, Plan. The values of paymentTerm and the
unit of a plan's duration are not shown: `Net30` and months are the sandbox's choice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from billhook.resources import (
    BillingData,
    Commitment,
    ContractProduct,
    ContractStatus,
    NewContract,
    Plan,
    Pricing,
    ProductGroup,
)
from billhook.sandbox.billing.contracts import contracts, customers
from billhook.sandbox.billing.contracts.contracts import inline_products
from billhook.sandbox.billing.credits.credit_grants import GRANT_SCHEDULES, check_grant
from billhook.sandbox.billing.usage import cycles, money
from billhook.sandbox.billing.usage.rating import read_tiers
from billhook.sandbox.clock import MAX_TIME, CalendarDuration, add_months
from billhook.sandbox.errors import already_exists, check_choice, check_key, invalid_request
from billhook.sandbox.options import MAX_PRODUCTS
from billhook.sandbox.storage.database import Transaction

PRICING_TYPES = ("Flat", "PerUnit", "Tiered")
DISCOUNT_TYPES = ("Amount", "Percentage")
COMMITMENT_TYPES = ("Currency", "Units")
OVERAGE_STRATEGIES = ("Bill", "Block")
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_CENTURY = timedelta(days=36_525)
_MONTHLY = CalendarDuration(months=1)
INTERVALS = {"Monthly": 1, "Quarterly": 3, "Yearly": 12}
LONGEST_MONTHS = 1200
_LONGEST_MONTH = 31
_NET = re.compile(r"Net([0-9]{1,4})")
T = TypeVar("T")


def check_product(product: ContractProduct, where: str) -> None:
    """Reject invalid tiers and unknown types; `where` is the product's path in the request."""
    pricing = product.pricing or Pricing()
    check_choice(pricing.type, PRICING_TYPES, f"{where}.pricing.type")
    if pricing.discount is not None:
        check_choice(pricing.discount.type, DISCOUNT_TYPES, f"{where}.pricing.discount.type")
        _refuse_negative(pricing.discount.amount, f"{where}.pricing.discount.amount")
        _refuse_negative(pricing.discount.recurring, f"{where}.pricing.discount.recurring")
    check_commitment(product.commitment, where)
    if pricing.type != "Flat":  # a flat price may be a rebate
        _refuse_negative(pricing.price, f"{where}.pricing.price")
    tiers = (pricing.model_extra or {}).get("tiers")
    if isinstance(tiers, list) and tiers and pricing.type != "Tiered":
        raise invalid_request(
            "tiers are for pricing of the type Tiered: set pricing.type, or leave the tiers out",
            f"{where}.pricing.tiers",
        )
    if pricing.type == "Tiered" and not read_tiers(pricing):
        raise invalid_request(
            "tiered pricing needs tiers: a list of {upTo, price} with rising upTo, null in the last only; "
            "prices must not be negative",
            f"{where}.pricing.tiers",
        )


def check_commitment(commitment: Commitment | None, where: str) -> None:
    """Reject a commitment of an unknown type; `where` is the path of the product or group that has it."""
    if commitment is not None:
        check_choice(commitment.type, COMMITMENT_TYPES, f"{where}.commitment.type")
        check_choice(commitment.overage_strategy, OVERAGE_STRATEGIES, f"{where}.commitment.overageStrategy")
        _refuse_negative(commitment.units, f"{where}.commitment.units")


def _refuse_negative(number: Decimal | int | None, where: str) -> None:
    if number is not None and number < 0:
        raise invalid_request(f"{where.rpartition('.')[2]} is {number}: it must not be negative", where)


def record_fields(tx: Transaction, request: NewContract) -> dict[str, Any]:
    """Validate a new contract and return the fields that it leaves out, and the sandbox's own.

    The fields have their names on the wire. Rejects what the sandbox could not bill.
    """
    _check_own_fields(tx, request)
    for n, grant in enumerate(request.credit_grants or []):
        check_grant(grant, f"creditGrants.{n}.")
        check_choice(grant.schedule, GRANT_SCHEDULES, f"creditGrants.{n}.schedule")
    groups = [(f"productGroups.{n}", group) for n, group in enumerate(request.product_groups or [])]
    # A contract of a plan sells the plan's products only.
    if request.plan_id:
        plan = contracts.PLANS.find(tx, request.plan_id)
        if plan is None:
            raise invalid_request("there is no such plan", "planId")
        period = plan_period(plan.billing_data)
        sold = [("", product) for product in plan.products or []]
    else:
        sold = [(where, product) for where, product, _ in inline_products(request)]
        for where, group in groups:
            check_commitment(group.commitment, where)
        plan, period = None, check_products(tx, "a contract", sold, None)
    lines: Sequence[tuple[str, ContractProduct | ProductGroup]] = [*groups, *sold]
    for where, line in lines:
        if cycles.commitment_cycles(line.commitment, period) == 0:
            raise invalid_request(
                "a commitment must be for a whole number of the contract's billing cycles: choose another "
                "commitment.scheduling.duration",
                "planId" if request.plan_id else f"{where}.commitment.scheduling.duration",
            )
    is_aligned = any(line.is_calendar_aligned for _, line in lines)
    return _completed(request, plan, [product for _, product in sold], period, is_aligned=is_aligned)


def _check_own_fields(tx: Transaction, request: NewContract) -> None:
    """Reject an unknown customer, and a status, term, currency or externalId that cannot be."""
    customers.find_named(tx, request.customer_id)
    if request.status not in (None, *ContractStatus):
        raise invalid_request(
            "the status of a new contract is InReview or Active: it reaches the others by its lifecycle",
            "status",
        )
    # A term shorter than a day would be renewed without end as the clock is moved.
    if not _EARLIEST <= request.start_date < MAX_TIME:
        years = f"{_EARLIEST.year} to {MAX_TIME.year - 1}"
        raise invalid_request(f"startDate must be in the years {years}", "startDate")
    if request.end_date is not None and not _DAY <= request.end_date - request.start_date <= _CENTURY:
        raise invalid_request("endDate must be a day to a century after startDate", "endDate")
    if request.currency is not None:
        money.check_currency(tx, request.currency)
    check_key(request.external_id, "externalId")
    # Contracts are looked up by either, so an externalId must not be another contract's id.
    if request.external_id is not None and contracts.find_named(tx, request.external_id) is not None:
        raise already_exists("another contract has this externalId or id", "externalId")


def check_products(
    tx: Transaction, seller: str, sold: Sequence[tuple[str, ContractProduct]], period: CalendarDuration | None
) -> CalendarDuration:
    """Return the billing cycle of these products: their duration, else the plan's `period`, else a month.

    Rejects what could not be billed. Each product comes with its path in the request, for the error.
    """
    if len(sold) > MAX_PRODUCTS:
        raise invalid_request(f"{seller} sells at most {MAX_PRODUCTS} products", "products")
    for where, product in sold:
        check_product(product, where)
        wanted = product.catalog_product_id
        if wanted is not None and contracts.CATALOG_PRODUCTS.find(tx, wanted) is None:
            raise invalid_request("there is no such catalog product", f"{where}.catalogProductId")
    for where, product in sold:
        duration = product.scheduling.duration if product.scheduling else None
        if duration is None:
            continue
        where = f"{where}.scheduling.duration"
        if duration.unit not in cycles.DURATION_UNITS:
            raise invalid_request("unit must be Days, Weeks, Months or Years", f"{where}.unit")
        own = cycles.duration_period(duration)
        if own is None:
            text = "value must be a whole number from 1, and the cycle at most a century"
            raise invalid_request(text, f"{where}.value")
        # A price is charged once a cycle, so a yearly price would be charged each month.
        if period not in (None, own):
            raise invalid_request(
                "products of a contract or plan must have one billing cycle: give this one the duration "
                "of the others, or a contract of its own",
                where,
            )
        period = own
    return period or _MONTHLY


def _completed(
    request: NewContract,
    plan: Plan | None,
    products: Sequence[ContractProduct],
    period: CalendarDuration,
    *,
    is_aligned: bool,
) -> dict[str, Any]:
    """Return the fields of a contract that its products, its plan or the defaults complete."""
    billing = (plan and plan.billing_data) or BillingData()
    end, anchor, day = request.end_date, None, 0
    # A plan is used as is: what it gives wins over the contract's own.
    if billing.duration is not None:
        end = add_months(request.start_date, int(billing.duration))
    # The billing day of the first product that has one, else the plan's.
    date = billing.billing_date
    days = [each.scheduling.billing_day for each in products if each.scheduling]
    given = _first_given(*days, date.day_of_month if date else None, 0)
    # Calendar alignment wins over a billing day; a billing day needs cycles of whole months.
    if is_aligned:
        anchor = cycles.calendar_anchor(request.start_date, period)
    elif period.months and given:
        # In a month without that day, its last day is the billing day; any larger one means so, too.
        day = min(given, _LONGEST_MONTH)
        anchor = cycles.billing_day_anchor(request.start_date, day)
    # The first payment term that is understood: of a product, else of the plan.
    terms = [*(each.payment_term for each in products), billing.payment_term]
    understood = (_NET.fullmatch(term or "") for term in terms)
    # Not by its attribute: reading a deprecated field warns.
    pro_rates = _first_given(billing.pro_rated, vars(request)["should_pro_rate_invoices"], False)
    return {
        "name": request.name or (plan.name if plan else None),
        "endDate": end,
        "autoRenewContract": _first_given(billing.auto_renewal, request.auto_renew_contract, True),
        "cycleMonths": period.months,
        "cycleDays": period.time.days,
        "cycleAnchor": anchor,
        "cycleBillingDay": day,
        "firstEndDate": end,
        "shouldProRateInvoices": pro_rates,
        "proRates": pro_rates,
        "paymentDays": next((int(term[1]) for term in understood if term), None),
    }


def plan_period(billing: BillingData | None) -> CalendarDuration:
    """Return the billing cycle of a plan: Monthly, Quarterly or Yearly, else a month."""
    return CalendarDuration(INTERVALS.get((billing and billing.billing_interval) or "", 1))


def check_plan_billing(billing: BillingData) -> None:
    """Reject an interval, billing day or duration that does not exist."""
    check_choice(billing.billing_interval, INTERVALS, "billingData.billingInterval")
    day = billing.billing_date.day_of_month if billing.billing_date else None
    if day is not None and not 1 <= day <= 31:
        raise invalid_request("dayOfMonth must be from 1 to 31", "billingData.billingDate.dayOfMonth")
    months = billing.duration
    if months is not None and (months != int(months) or not 1 <= months <= LONGEST_MONTHS):
        raise invalid_request(
            "duration must be a whole number of months, from 1 to a century", "billingData.duration"
        )


def _first_given(*values: T | None) -> T:
    """Return the first value that is not None; the last one never is."""
    return next(value for value in values if value is not None)
