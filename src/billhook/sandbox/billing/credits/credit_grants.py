"""Credit products, and the credits of them: grant, deduct and expire them; grants that contracts schedule.

The specification shows only the identifier of a credit product, and no values of `schedule`. Source: spec,
"Endpoints", Credits; "Resources and their fields", CreditGrant; Contract, creditGrants; "States and
transitions", Other resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictStr
from sqlalchemy import func, select

from billhook.events import CreditKind
from billhook.resources import CreditGrant, StoredResource
from billhook.sandbox import scheduled_jobs
from billhook.sandbox.billing.contracts import customers
from billhook.sandbox.billing.contracts.contracts import CONTRACTS
from billhook.sandbox.billing.credits.credit_pools import (
    EXPIRY,
    LedgerReference,
    add_lot,
    open_lots,
    take_from_lots,
)
from billhook.sandbox.billing.usage.cycles import ContractRecord, renews
from billhook.sandbox.billing.usage.money import exact_sum, is_in_range
from billhook.sandbox.billing.usage.rating import Charge, credit_charge
from billhook.sandbox.clock import MAX_TIME, add_months
from billhook.sandbox.errors import check_choice, check_key, invalid_request
from billhook.sandbox.operations import SandboxResource
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import Repository, request_document
from billhook.sandbox.storage.tables import credit_lot, credit_pool, credit_product, invoice, ledger_entry

_Kind = Annotated[
    StrictStr | None, Field(description="Kind of the balance: Monetary or Unit.", examples=["Monetary"])
]
_MONTHS: Mapping[str, int] = {"Monthly": 1, "Quarterly": 3, "Yearly": 12}
"""The months between two grants, by `schedule`; any other value means once."""
GRANT_SCHEDULES = ("Once", *_MONTHS)
"""The values of `schedule` that a contract's grant may have."""
_MICROSECOND = timedelta(microseconds=1)


class NewCreditProduct(SandboxResource, register=False):
    """A credit product to create."""

    name: Annotated[StrictStr, Field(examples=["Starter credits"])]
    """Name of the credit product."""
    balance_kind: _Kind = None


class CreditProduct(StoredResource, NewCreditProduct, register=False):
    """A credit product."""


CREDIT_PRODUCTS = Repository(credit_product, CreditProduct, "crp")


def create_credit_product(tx: Transaction, request: NewCreditProduct) -> CreditProduct:
    """Create a credit product; of kind Monetary by default."""
    check_choice(request.balance_kind, CreditKind, "balanceKind")
    kind = request.balance_kind or str(CreditKind.MONETARY)
    return CREDIT_PRODUCTS.add(tx, {**request_document(request), "balanceKind": kind})


def _find_or_create_product(tx: Transaction, product_id: str | None, kind: str | None) -> CreditProduct:
    """Return the credit product with this id, created if necessary; without an id, the first of the kind."""
    if product_id is None:
        # A grant without a kind may use a product of either kind.
        found = (each for each in CREDIT_PRODUCTS.all(tx) if kind in (None, each.balance_kind))
        return next(found, None) or create_credit_product(
            tx, NewCreditProduct(name="Credits", balance_kind=kind)
        )
    # The id is the user's own, so it may be any text; the name starts out the same.
    data = {"name": product_id, "balanceKind": kind or str(CreditKind.MONETARY)}
    return CREDIT_PRODUCTS.find(tx, product_id) or CREDIT_PRODUCTS.add(tx, data, resource_id=product_id)


def grant(tx: Transaction, customer_id: str, credit_grant: CreditGrant, link: LedgerReference) -> str | None:
    """Add credits to a customer's pool and return the id of the ledger entry; none without an amount.

    Emits CreditPoolIncreased.
    """
    if credit_grant.grant_amount is None:
        return None
    # A pool has one kind; its product's kind is only the default.
    product = _find_or_create_product(tx, credit_grant.credit_product_id, credit_grant.balance_kind)
    pool_key = (customer_id, product.id, credit_grant.balance_kind or str(product.balance_kind))
    lot_id, entry_id = add_lot(tx, pool_key, credit_grant, link)
    if has_expired(tx, credit_grant):
        # Granted and expired in the past: both entries are in the ledger.
        expire_lot(tx, lot_id)
    elif credit_grant.expiration_date is not None:
        scheduled_jobs.schedule(tx, credit_grant.expiration_date, "credit_expiry", lot_id)
    return entry_id


def check_amount(amount: Decimal, param: str) -> None:
    """Reject an amount of credits that is not positive, or too large."""
    if amount <= 0 or not is_in_range(amount):
        name = param.rpartition(".")[2]
        raise invalid_request(f"{name} must be above zero, with at most 100 digits before the point", param)


def check_grant(credit_grant: CreditGrant, where: str) -> None:
    """Reject an invalid grant; `where` is its path in the request, with a point at its end."""
    if credit_grant.grant_amount is not None:
        check_amount(credit_grant.grant_amount, f"{where}grantAmount")
    if credit_grant.price is not None and (credit_grant.price < 0 or not is_in_range(credit_grant.price)):
        raise invalid_request("price must be zero or more, with at most 100 digits", f"{where}price")
    check_choice(credit_grant.balance_kind, CreditKind, f"{where}balanceKind")
    check_key(credit_grant.credit_product_id, f"{where}creditProductId")


def deduct(tx: Transaction, customer_id: str, amount: Decimal) -> None:
    """Deduct `amount` from a customer's credits, the first to expire first; rejects more than there are.

    Source: spec, "Endpoints", POST /credits/deduct.
    """
    check_amount(amount, "creditAmount")
    # Lots of all pools, also those that do not apply automatically: a deduction is explicit.
    lots = open_lots(tx, credit_pool.c.customer_id == customer_id)
    if amount > exact_sum(lot.remaining for lot in lots):
        raise invalid_request(
            "the customer has fewer credits than that: grant more, or deduct less",
            "creditAmount",
            code="insufficient_credits",
        )
    take_from_lots(tx, lots, amount, "Deduction", LedgerReference())


def expire_lot(tx: Transaction, subject_id: str) -> None:
    """Handle the job `credit_expiry`: expire the credits that are left of a lot."""
    # Empty if they were used up: such a lot is deleted.
    lots = open_lots(tx, credit_lot.c.id == subject_id)
    for lot in lots:
        take_from_lots(tx, lots, lot.remaining, EXPIRY, LedgerReference())


def has_expired(tx: Transaction, credit_grant: CreditGrant | None) -> bool:
    """Return whether these credits would expire at once."""
    expires_at = None if credit_grant is None else credit_grant.expiration_date
    return expires_at is not None and expires_at <= tx.now


def start_schedule(tx: Transaction, contract: ContractRecord) -> None:
    """Grant the credits of a contract that becomes active, from its start on. Call it once for each.

    For a contract that began in the past this includes past cycles, since they are billed now, too.
    """
    _grant_from(tx, contract, _next_grant_at(contract, contract.start_date - _MICROSECOND))


def handle_scheduled_grant(tx: Transaction, contract_id: str) -> None:
    """Handle the job `credit_grant`: grant the credits of a contract that are due, and schedule the next."""
    _grant_from(tx, CONTRACTS.get(tx, contract_id), tx.now)


def _grant_from(tx: Transaction, contract: ContractRecord, moment: datetime | None) -> None:
    """Grant what is due from `moment` on, each charged to the cycle that it belongs to; schedule the next."""
    # A contract that renews has no last grant.
    ends_at = MAX_TIME if contract.end_date is None or renews(contract) else contract.end_date
    while moment is not None and moment <= tx.now and moment < ends_at:
        _grant_due(tx, contract, moment)
        moment = _next_grant_at(contract, moment)
    if moment is not None and moment < ends_at:
        scheduled_jobs.schedule(tx, moment, "credit_grant", contract.id)


def credit_charges(
    tx: Transaction, contract: ContractRecord, end: datetime, smallest: Decimal
) -> list[Charge]:
    """Return the charges for credits that were due before `end`, since the contract was billed last."""
    columns = ledger_entry.c
    billed = select(func.max(invoice.c.cycle_end)).where(invoice.c.contract_id == contract.id)
    since = tx.scalar(billed) or contract.start_date
    due = (columns.contract_id == contract.id) & (columns.grant_due_at >= since)
    granted = select(columns.grant_number).where(due, columns.grant_due_at < end).order_by(columns.seq)
    sold = [(contract.credit_grants or [])[number] for number in tx.scalars(granted)]
    return [credit_charge(credit_grant, smallest) for credit_grant in sold if credit_grant.price]


def _grant_due(tx: Transaction, contract: ContractRecord, moment: datetime) -> None:
    """Grant now the credits that were due at `moment`; a later invoice charges them.

    An Inactive customer is granted nothing, since its cycle is not billed.
    """
    if customers.inactive_customers(tx, [contract.customer_id]):
        return
    for number, credit_grant in enumerate(contract.credit_grants or []):
        is_due = _grant_after(contract, credit_grant, moment - _MICROSECOND) == moment
        # Credits that would expire at once are neither granted nor charged.
        if is_due and not has_expired(tx, credit_grant):
            link = LedgerReference(contract.id, grant_number=number, grant_due_at=moment)
            grant(tx, contract.customer_id, credit_grant, link)


def _next_grant_at(contract: ContractRecord, after: datetime) -> datetime | None:
    """Return the first moment after `after` at which credits of the contract are due, or None."""
    found = (_grant_after(contract, each, after) for each in contract.credit_grants or [])
    return min((moment for moment in found if moment is not None), default=None)


def _grant_after(contract: ContractRecord, credit_grant: CreditGrant, after: datetime) -> datetime | None:
    """Return the first moment after `after` at which these credits are due, before they expire, or None."""
    months, start = _MONTHS.get(credit_grant.schedule or "", 0), contract.start_date
    # Counted from the start: a 31st comes back after a shorter month.
    count = ((after.year - start.year) * 12 + after.month - start.month) // months if months else 0
    try:
        moment = add_months(start, max(count, 0) * months)
        if moment <= after:
            moment = add_months(start, (count + 1) * months)
    except OverflowError:  # beyond the year 9999
        return None
    expires_at = credit_grant.expiration_date or MAX_TIME
    return moment if after < moment < expires_at else None
