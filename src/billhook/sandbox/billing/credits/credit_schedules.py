"""Credits that a contract grants, once or on a schedule.

Source: spec, "Resources and their fields", Contract, creditGrants. The values of `schedule` are not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType

from sqlalchemy import func, select

from billhook.resources import CreditGrant
from billhook.sandbox.billing import customers, scheduled_jobs
from billhook.sandbox.billing.contracts.contracts import CONTRACTS
from billhook.sandbox.billing.contracts.cycles import ContractRecord, renews
from billhook.sandbox.billing.credits.credit_grants import grant, has_expired
from billhook.sandbox.billing.credits.credit_pools import LedgerReference
from billhook.sandbox.billing.rating import Charge, credit_charge
from billhook.sandbox.clock import add_months
from billhook.sandbox.storage.tables.billing import invoice, ledger_entry
from billhook.sandbox.storage.transaction import Transaction

_MONTHS: Mapping[str, int] = MappingProxyType({"Monthly": 1, "Quarterly": 3, "Yearly": 12})
"""The months between two grants, by `schedule`; any other value means once."""

_OF = " of "
"""In the subject of a job, between the number of the grant and the id of its contract."""

GRANT_SCHEDULES = ("Once", *_MONTHS)
"""The values of `schedule` that a contract's grant may have."""


def start_schedules(tx: Transaction, contract: ContractRecord) -> None:
    """Grant the credits of a contract that becomes active, from its start on. Call it once for each.

    For a contract that began in the past this includes past cycles, since they are billed now, too.
    """
    # A contract that renews has no last grant.
    ends_at = None if renews(contract) else contract.end_date
    for number, credit_grant in enumerate(contract.credit_grants or []):
        moment: datetime | None = contract.start_date
        # All grants that are due already, each charged to the cycle that it belongs to.
        while moment is not None and moment <= tx.now and (ends_at is None or moment < ends_at):
            _grant(tx, contract, number, moment)
            moment = _next_grant_at(contract.start_date, _months(credit_grant), moment)
        _schedule_next(tx, contract, number, moment)


def stop_schedules(tx: Transaction, contract: ContractRecord) -> None:
    """Stop the grants of a contract that was deleted or has expired."""
    for number in range(len(contract.credit_grants or [])):
        scheduled_jobs.cancel(tx, _subject(contract, number))


def handle_scheduled_grant(tx: Transaction, subject_id: str) -> None:
    """Handle the job `credit_grant`: grant the credits and schedule the next grant.

    An Inactive customer is granted nothing, since its cycle is not billed.
    """
    number, _, contract_id = subject_id.partition(_OF)
    contract = CONTRACTS.get(tx, contract_id)
    credit_grant = (contract.credit_grants or [])[int(number)]
    _grant(tx, contract, int(number), tx.now)
    next_at = _next_grant_at(contract.start_date, _months(credit_grant), tx.now)
    _schedule_next(tx, contract, int(number), next_at)


def credit_charges(
    tx: Transaction, contract: ContractRecord, end: datetime, smallest: Decimal
) -> list[Charge]:
    """Return the charges for credits that were due before `end`, since the contract was billed last."""
    columns = ledger_entry.c
    billed = select(func.max(invoice.c.cycle_end)).where(invoice.c.contract_id == contract.id)
    since = tx.connection.execute(billed).scalar() or contract.start_date
    due = (columns.contract_id == contract.id) & (columns.grant_due_at >= since)
    granted = select(columns.grant_number).where(due, columns.grant_due_at < end).order_by(columns.seq)
    sold = [(contract.credit_grants or [])[number] for number in tx.connection.scalars(granted)]
    return [credit_charge(credit_grant, smallest) for credit_grant in sold if credit_grant.price]


def _grant(tx: Transaction, contract: ContractRecord, number: int, moment: datetime) -> None:
    """Grant now the credits with this number that were due at `moment`; a later invoice charges them."""
    credit_grant = (contract.credit_grants or [])[number]
    # Credits that would expire at once are neither granted nor charged.
    if not has_expired(tx, credit_grant) and not customers.inactive_customers(tx, [contract.customer_id]):
        link = LedgerReference(contract_id=contract.id, grant=(number, moment))
        grant(tx, contract.customer_id, credit_grant, link)


def _schedule_next(tx: Transaction, contract: ContractRecord, number: int, moment: datetime | None) -> None:
    """Schedule the grant with this number at `moment`; not without one, or once its credits have expired."""
    expires_at = (contract.credit_grants or [])[number].expiration_date
    if moment is not None and (expires_at is None or moment < expires_at):
        scheduled_jobs.schedule(tx, moment, "credit_grant", _subject(contract, number))


def _subject(contract: ContractRecord, number: int) -> str:
    return f"{number}{_OF}{contract.id}"


def _months(credit_grant: CreditGrant) -> int:
    return _MONTHS.get(credit_grant.schedule or "", 0)


def _next_grant_at(starts_at: datetime, months: int, now: datetime) -> datetime | None:
    """Return the first moment after `now` that is whole periods after `starts_at`, or None."""
    if months == 0:
        return None
    # Counted from the start: a 31st comes back after a shorter month.
    passed = (now.year - starts_at.year) * 12 + now.month - starts_at.month
    count = passed // months
    try:
        while (moment := add_months(starts_at, count * months)) <= now:
            count += 1
    except OverflowError:  # beyond the year 9999
        return None
    return moment
