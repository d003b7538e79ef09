"""What becomes of contracts: they are made, go into force, are renewed, expire, or are deleted.

Source: spec, "Resources and their fields", Contract; "Endpoints", Contracts; "Events".
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from billhook.events import ContractCreated, ContractExpired, NewCustomerWithoutContract, UpcomingRenewal
from billhook.resources import Contract, ContractStatus, NewContract
from billhook.sandbox.billing import (
    agenda,
    consumption,
    contract_offer,
    contract_rules,
    contracts,
    credit_schedules,
    custom_fields,
    customers,
    cycles,
    usage_cuts,
)
from billhook.sandbox.billing.contracts import CONTRACTS, KeptContract
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.documents import as_document, as_sent
from billhook.sandbox.transaction import Transaction

__all__ = ["activate", "create", "delete", "end", "miss", "start", "tell_renewal"]

NOTICE = timedelta(days=30)
"""How long before its end a renewal is told."""


def create(tx: Transaction, given: NewContract) -> KeptContract:
    """Make a contract. It is in force at once, unless it is to be reviewed. Raises ContractCreated."""
    offer = contract_rules.check(tx, given)
    customer = customers.find(tx, given.customer_id)
    data = as_sent(given)
    for name in ("customFields", "deletedAt"):
        data.pop(name, None)
    values = custom_fields.set_values(tx, "Contract", [], given.custom_fields or [])
    kept = {
        **contract_offer.kept(given, offer),
        "status": given.status or ContractStatus.ACTIVE.value,
        "isTrial": given.is_trial is True,
        "customFieldValues": [as_document(value) for value in values] or None,
    }
    made = CONTRACTS.add(
        tx,
        {**data, **kept},
        customer_id=customer.id,
        external_id=given.external_id,
        status=kept["status"],
        start_at=given.start_date,
        end_at=kept["endDate"],
        in_force_at=_in_force_at(tx, given) if kept["status"] == ContractStatus.ACTIVE else None,
    )
    tx.raise_event(
        ContractCreated(
            date=tx.now,
            contract_id=made.id,
            customer_id=customer.id,
            contract_name=contracts.name_of(made),
            status=str(made.status),
            start_date=made.start_date,
            end_date=made.end_date,
            customer=customers.as_told(tx, customer),
        )
    )
    if made.status == ContractStatus.ACTIVE:
        _begin(tx, made)
    elif made.end_date is not None:
        agenda.add(tx, made.end_date, "contract_end", made.id)
    return made


def activate(tx: Transaction, contract: KeptContract) -> KeptContract:
    """Put a contract that was in review into force."""
    if contract.status != ContractStatus.IN_REVIEW:
        raise invalid_request("only a contract that is InReview can be activated", code="not_in_review")
    active = ContractStatus.ACTIVE.value
    contract = CONTRACTS.change(
        tx, contract, {"status": active}, status=active, in_force_at=_in_force_at(tx, contract)
    )
    agenda.drop(tx, contract.id, "contract_end")
    _begin(tx, contract)
    return contract


def delete(tx: Transaction, contract: KeptContract) -> KeptContract:
    """Take it out of force for good: nothing more falls due for it, and the cycle that runs is not billed."""
    agenda.drop(tx, contract.id)
    credit_schedules.end(tx, contract.id)
    return CONTRACTS.change(tx, contract, {"deletedAt": tx.now}, deleted_at=tx.now)


def start(tx: Transaction, contract_id: str) -> None:
    """The step `contract_start`: usage of its first day was perhaps there before it."""
    consumption.cycle_began(tx, contracts.find(tx, contract_id))


def end(tx: Transaction, contract_id: str) -> None:
    """The step `contract_end`: renew it, or let it expire. Raises ContractExpired.

    One that is still in review was never in force: there is nothing to renew.
    """
    contract = contracts.find(tx, contract_id)
    if contract.status == ContractStatus.ACTIVE and contracts.renews(contract):
        _renew(tx, contract)
        return
    contract = CONTRACTS.change(tx, contract, {"status": "Expired"}, status="Expired")
    credit_schedules.end(tx, contract.id)
    tx.raise_event(ContractExpired(**_as_told(tx, contract)))


def miss(tx: Transaction, customer_id: str) -> None:
    """The step `customer_without_contract`. Raises NewCustomerWithoutContract if there is still none."""
    if not contracts.has_any(tx, customer_id):
        customer = customers.find(tx, customer_id)
        name = customer.name or customer.id
        tx.raise_event(NewCustomerWithoutContract(date=tx.now, customer_id=customer_id, customer_name=name))


def tell_renewal(tx: Transaction, contract_id: str) -> None:
    """The step `renewal_notice`. Raises UpcomingRenewal."""
    tx.raise_event(UpcomingRenewal(**_as_told(tx, contracts.find(tx, contract_id))))


def _in_force_at(tx: Transaction, contract: NewContract | Contract) -> datetime:
    """From when on usage is its own before that of contracts that come into force later."""
    return max(contract.start_date, tx.now)


def _begin(tx: Transaction, contract: KeptContract) -> None:
    """Put down what falls due for a contract that goes into force, and bill the cycles that are over."""
    runs = contract.end_date is None or contract.end_date > tx.now or contracts.renews(contract)
    if runs:
        agenda.add(tx, contracts.cycle_at(contract, tx.now)[1], "cycle_end", contract.id)
    _plan_end(tx, contract)  # before the credits: one that ends grants none at that very moment
    credit_schedules.begin(tx, contract)
    cycles.bill_past(tx, contract)
    if runs:
        if contract.start_date <= tx.now:
            consumption.cycle_began(tx, contract)
        else:
            agenda.add(tx, contract.start_date, "contract_start", contract.id)


def _plan_end(tx: Transaction, contract: KeptContract) -> None:
    if contract.end_date is None:
        return
    if contracts.renews(contract) and contract.end_date > tx.now:
        agenda.add(tx, contract.end_date - NOTICE, "renewal_notice", contract.id)
    agenda.add(tx, contract.end_date, "contract_end", contract.id)


def _renew(tx: Transaction, contract: KeptContract) -> None:
    ends_at = contracts.next_end(contract, tx.now)
    usage_cuts.cut(tx, contract.customer_id, [ends_at])
    _plan_end(tx, CONTRACTS.change(tx, contract, {"endDate": ends_at}, end_at=ends_at))


def _as_told(tx: Transaction, contract: Contract) -> dict[str, Any]:
    customer = customers.find(tx, contract.customer_id)
    return {
        "date": tx.now,
        "contract_end_date": contract.end_date,
        "contract_name": contracts.name_of(contract),
        "contract_id": contract.id,
        "customer_name": customer.name or customer.id,
        "is_trial": contract.is_trial is True,
    }
