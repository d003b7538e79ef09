"""What a new contract must be, besides its form. Source: spec, "Resources and their fields", Contract."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from billhook.resources import ContractProduct, ContractStatus, NewContract, ProductGroup
from billhook.sandbox.billing import catalog, currencies, customers, plans, terms
from billhook.sandbox.billing.contract_offer import Offer, period_of_plan, period_of_products
from billhook.sandbox.billing.contract_terms import cycles_in
from billhook.sandbox.billing.contracts import CONTRACTS, inline_products
from billhook.sandbox.billing.credit_schedules import SCHEDULES
from billhook.sandbox.billing.credits import check_grant
from billhook.sandbox.limits import MAX_PRODUCTS
from billhook.sandbox.periods import LAST, Period
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.keys import check_key
from billhook.sandbox.storage.tables.billing import contract
from billhook.sandbox.transaction import Transaction

__all__ = ["check"]

_FIRST = datetime(1900, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_CENTURY = timedelta(days=36_525)
_CURRENCY = re.compile(r"[A-Z]{3}")


def check(tx: Transaction, given: NewContract) -> Offer:
    """Refuse what cannot be. Gives what the contract is about."""
    if customers.CUSTOMERS.find(tx, given.customer_id) is None:
        raise invalid_request("there is no such customer", "customerId")
    if given.status not in (None, *ContractStatus):
        raise invalid_request("a new contract is InReview or Active: it becomes the rest", "status")
    _check_dates(given)
    if given.currency is not None and not _CURRENCY.fullmatch(given.currency):
        raise invalid_request("currency is a code of three capital letters, such as USD", "currency")
    if given.currency is not None:
        currencies.check(tx, given.currency, "currency")
    _check_external_id(tx, given.external_id)
    for n, grant in enumerate(given.credit_grants or []):
        check_grant(grant, f"creditGrants.{n}")
        terms.check_one_of(grant.schedule, SCHEDULES, f"creditGrants.{n}.schedule")
    if given.plan_id:
        plan = plans.PLANS.find(tx, given.plan_id)
        if plan is None:
            raise invalid_request("there is no such plan", "planId")
        period, products = period_of_plan(plan.billing_data), plans.products(tx, [plan.id])[plan.id]
    else:
        plan, period = None, _check_products(tx, given)
        products = [product for _, product, _ in inline_products(given)]
    lines: Sequence[ContractProduct | ProductGroup] = [*(given.product_groups or []), *products]
    for line in lines:
        if cycles_in(line.commitment, period) == 0:
            raise invalid_request(
                "a commitment is for a whole number of the contract's billing cycles: choose another "
                "commitment.scheduling.duration",
                "planId" if given.plan_id else _path_of(given, line),
            )
    return Offer(plan, products, period, any(line.is_calendar_aligned for line in lines))


def _path_of(given: NewContract, line: ContractProduct | ProductGroup) -> str:
    """Where the request has the duration of this line's commitment."""
    found = [where for where, product, _ in inline_products(given) if product is line]
    found += [f"productGroups.{n}" for n, group in enumerate(given.product_groups or []) if group is line]
    return f"{found[0]}.commitment.scheduling.duration"


def _check_dates(given: NewContract) -> None:
    """A term is of a day at least and a century at most: shorter ones would be renewed without end."""
    if not _FIRST <= given.start_date < LAST:
        raise invalid_request(f"startDate is in the years {_FIRST.year} to {LAST.year - 1}", "startDate")
    if given.end_date is not None and not _DAY <= given.end_date - given.start_date <= _CENTURY:
        raise invalid_request("endDate is from a day to a century after startDate", "endDate")


def _check_external_id(tx: Transaction, external_id: str | None) -> None:
    if external_id is None:
        return
    check_key(external_id, "externalId")
    named_so = (contract.c.external_id == external_id) | (contract.c.id == external_id)
    if CONTRACTS.first(tx, named_so, contract.c.deleted_at.is_(None)) is not None:
        raise invalid_request(
            "another contract has this externalId or id", "externalId", code="already_exists"
        )


def _check_products(tx: Transaction, given: NewContract) -> Period:
    sold = [(where, product) for where, product, _ in inline_products(given)]
    if len(sold) > MAX_PRODUCTS:
        raise invalid_request(f"a contract sells at most {MAX_PRODUCTS} products", "products")
    for where, product in sold:
        terms.check(product, where)
        wanted = product.catalog_product_id
        if wanted is not None and catalog.PRODUCTS.find(tx, wanted) is None:
            raise invalid_request("there is no such catalog product", f"{where}.catalogProductId")
    for n, group in enumerate(given.product_groups or []):
        terms.check_commitment(group.commitment, f"productGroups.{n}")
    return period_of_products(sold)
