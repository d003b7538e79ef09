"""The lifecycle of contracts: creation, activation, the end of each billing cycle, renewal, expiry, deletion.

Source: spec, "Resources and their fields", Contract; "Endpoints", Contracts; Invoices; "Events".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from billhook.events import ContractCreated, ContractExpired, NewCustomerWithoutContract, UpcomingRenewal
from billhook.resources import Contract, ContractStatus, NewContract
from billhook.sandbox import scheduled_jobs
from billhook.sandbox.billing import (
    contracts,
    credit_grants,
    credit_pools,
    custom_fields,
    customers,
    cycles,
    daily_usage,
    invoices,
    money,
    new_contracts,
    statements,
)
from billhook.sandbox.billing.contracts import CONTRACTS
from billhook.sandbox.billing.cycles import ContractRecord
from billhook.sandbox.billing.line_items import ContractCycle
from billhook.sandbox.billing.rating import Charge
from billhook.sandbox.clock import MAX_TIME
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import request_document, to_document
from billhook.sandbox.storage.tables import contract as contract_table
from billhook.sandbox.webhooks.outbox import raise_event

MAX_PAST = 400
"""The most cycles that may be over when a contract becomes active: more than a year of daily ones."""
RENEWAL_NOTICE = timedelta(days=30)
"""How long before the end of a contract its renewal is announced."""


def handle_cycle_end(tx: Transaction, contract_id: str) -> None:
    """Handle the job `cycle_end`: bill the cycle that is over, and schedule the end of the next one."""
    contract = contracts.find(tx, contract_id)
    # The last microsecond of the cycle: at tx.now itself the next one has begun.
    bill_cycle(tx, contract, cycles.cycle_at(contract, tx.now - timedelta(microseconds=1)))
    # A contract that is renewed ends at this moment, too, but goes on.
    ends = contract.end_date is not None and not cycles.renews(contract)
    if contract.status == ContractStatus.ACTIVE and not (ends and contract.end_date == tx.now):
        next_end = cycles.cycle_at(contract, tx.now)[1]
        daily_usage.add_cuts(tx, contract.customer_id, [next_end])
        scheduled_jobs.schedule(tx, next_end, "cycle_end", contract.id)
        statements.settle_present(tx, contract)


def bill_past_cycles(tx: Transaction, contract: ContractRecord) -> None:
    """Bill the cycles that were over before the contract became active; rejects too many of them."""
    past = cycles.past_cycles(contract, tx.now, MAX_PAST)
    if len(past) > MAX_PAST:
        raise invalid_request(
            f"the contract began more than {MAX_PAST} billing cycles ago: begin later, or bill less often",
            "startDate",
        )
    running = cycles.cycle_at(contract, tx.now)
    # Usage may have arrived before the contract, so its days are not yet split at the cycles' borders.
    borders = [moment for cycle in (*past, running) for moment in cycle]
    daily_usage.add_cuts(tx, contract.customer_id, [*borders, contract.end_date])
    for cycle in past:
        bill_cycle(tx, contract, cycle)


def bill_cycle(tx: Transaction, contract: ContractRecord, cycle: tuple[datetime, datetime]) -> None:
    """Issue the invoices of a cycle, with late usage of earlier ones; not yet, if the customer is Inactive.

    Products with pricing.issuedSeparately get an invoice of their own. An invoice for zero is issued, too.
    Emits Overage for each product used beyond its commitment, also where that is free of charge.
    """
    if customers.is_inactive(customers.find(tx, contract.customer_id)):
        return
    charges = statements.statement(tx, ContractCycle(contract, *cycle))
    # After this cycle's statement: late usage draws only the credits that are left.
    _issue(tx, contract, cycle, [*charges, *statements.late_charges(tx, contract, cycle[0])])


def _issue(
    tx: Transaction, contract: ContractRecord, cycle: tuple[datetime, datetime], charges: Sequence[Charge]
) -> None:
    """Issue the invoice of these charges, and one for each line that is issued separately."""
    invoiced: dict[str | None, list[Charge]] = {None: []}
    for charge in charges:
        key = charge.line_key if charge.issued_separately else None
        invoiced.setdefault(key, []).append(charge)
    # An empty invoice is left out only if separate ones bill the cycle.
    if not invoiced[None] and len(invoiced) > 1:
        del invoiced[None]
    for each in invoiced.values():
        invoices.issue_cycle_invoice(tx, contract, cycle, each)


def bill_postponed_cycles(tx: Transaction, customer_id: str, inactive_since: datetime) -> None:
    """Bill the cycles that ended while a customer was Inactive, once it is not.

    A cycle throughout which it was Inactive is not billed, so this is one cycle of each contract at most.
    """
    of = contract_table.c
    for contract in contracts.CONTRACTS.all(
        tx, of.customer_id == customer_id, of.in_force_at < inactive_since
    ):
        ended = contracts.term(contract)[1]
        start, end = cycles.cycle_at(contract, inactive_since)
        is_over = start < inactive_since < ended and end <= min(tx.now, ended)
        if is_over and not invoices.of_cycles_ending(tx, contract.id, end):
            bill_cycle(tx, contract, (start, end))


def bill_late_usage(tx: Transaction) -> None:
    """Bill usage that came after the last invoice of contracts that get no other one. Emits Overage."""
    for contract in statements.contracts_with_late_usage(tx):
        if not customers.is_inactive(customers.find(tx, contract.customer_id)):
            late = statements.late_charges(tx, contract, MAX_TIME)
            if late and late[-1].cycle:
                _issue(tx, contract, late[-1].cycle, late)


def create(tx: Transaction, request: NewContract) -> ContractRecord:
    """Create a contract, and activate it unless it is InReview. Emits ContractCreated."""
    # Before anything is written: a rejected contract leaves nothing behind.
    completed = new_contracts.record_fields(tx, request)
    customer = customers.find(tx, request.customer_id)
    data = request_document(request)
    # A new contract cannot be deleted already; custom fields are stored as values of definitions.
    for name in ("customFields", "deletedAt"):
        data.pop(name, None)
    values = custom_fields.set_values(tx, "Contract", [], request.custom_fields or [])
    fields = {
        **completed,
        "status": request.status or ContractStatus.ACTIVE.value,
        "isTrial": request.is_trial is True,
        "customFieldValues": [to_document(value) for value in values] or None,
        **contracts.agreed(tx, request, money.billing_currency(request, customer)),
    }
    # Of two contracts, usage belongs to the one that came into force earlier.
    is_active = fields["status"] == ContractStatus.ACTIVE
    in_force_at = max(request.start_date, tx.now) if is_active else None
    created = CONTRACTS.add(tx, {**data, **fields}, in_force_at=in_force_at)
    event = ContractCreated(
        date=tx.now,
        contract_id=created.id,
        customer_id=customer.id,
        contract_name=contracts.display_name(created),
        status=str(created.status),
        start_date=created.start_date,
        end_date=created.end_date,
        customer=customers.event_details(tx, customer),
    )
    raise_event(tx, event)
    if is_active:
        _schedule_contract(tx, created)
    # A contract in review expires at its end date, too, unless it is activated by then.
    elif created.end_date is not None:
        scheduled_jobs.schedule(tx, created.end_date, "contract_end", created.id)
    return created


def activate(tx: Transaction, contract: ContractRecord) -> ContractRecord:
    """Activate a contract that is InReview."""
    if contract.status != ContractStatus.IN_REVIEW:
        raise invalid_request("only a contract that is InReview can be activated", code="not_in_review")
    # What was agreed in review may have changed until now.
    customer = customers.find(tx, contract.customer_id)
    terms = contracts.agreed(tx, contract, money.billing_currency(contract, customer))
    active = {"status": ContractStatus.ACTIVE.value, **terms}
    contract = CONTRACTS.change(tx, contract, active, in_force_at=max(contract.start_date, tx.now))
    # Scheduled for the review; activation schedules the end again, perhaps with a renewal.
    scheduled_jobs.cancel(tx, contract.id, "contract_end")
    _schedule_contract(tx, contract)
    return contract


def delete(tx: Transaction, contract: ContractRecord) -> ContractRecord:
    """Delete a contract: cancel its jobs, and take back what is left of its credits.

    Its running cycle is not billed: the usage in it passes to other contracts that sell the same. Credits
    that were drawn for it stay drawn.
    """
    # Otherwise its jobs would look for a contract that is not found any more.
    scheduled_jobs.cancel(tx, contract.id)
    credit_pools.take_back(tx, contract.id)
    cycle_start = cycles.cycle_at(contract, tx.now)[0]
    deleted = CONTRACTS.change(tx, contract, {"deletedAt": tx.now})
    # The usage of that cycle is free for the customer's other contracts, which may have billed its days.
    changed = daily_usage.mark_changed(tx, contract.customer_id, cycle_start)
    statements.handle_usage_changed(tx, changed)
    return deleted


def handle_contract_start(tx: Transaction, contract_id: str) -> None:
    """Handle the job `contract_start`: apply usage of the first day that arrived before the start."""
    statements.settle_present(tx, contracts.find(tx, contract_id))


def handle_contract_end(tx: Transaction, contract_id: str) -> None:
    """Handle the job `contract_end`: renew the contract, or let it expire. Emits ContractExpired.

    A contract that is still InReview was never in force, so it is not renewed.
    """
    contract = contracts.find(tx, contract_id)
    if contract.status == ContractStatus.ACTIVE and cycles.renews(contract):
        ends_at = cycles.next_end_date(contract, tx.now)
        # The new end may lie within a day whose usage is already stored in one row.
        daily_usage.add_cuts(tx, contract.customer_id, [ends_at])
        _schedule_end(tx, CONTRACTS.change(tx, contract, {"endDate": ends_at}))
        return
    contract = CONTRACTS.change(tx, contract, {"status": "Expired"})
    scheduled_jobs.cancel(tx, contract.id, "credit_grant")
    raise_event(tx, ContractExpired(**_event_details(tx, contract)))


def handle_missing_contract(tx: Transaction, customer_id: str) -> None:
    """Handle the job `customer_without_contract`. Emits NewCustomerWithoutContract if there is still none."""
    of = contract_table.c
    if not tx.any(contract_table, of.customer_id == customer_id, of.deleted_at.is_(None)):
        customer = customers.find(tx, customer_id)
        name = customer.name or customer.id
        raise_event(tx, NewCustomerWithoutContract(date=tx.now, customer_id=customer_id, customer_name=name))


def handle_renewal_notice(tx: Transaction, contract_id: str) -> None:
    """Handle the job `renewal_notice`. Emits UpcomingRenewal."""
    raise_event(tx, UpcomingRenewal(**_event_details(tx, contracts.find(tx, contract_id))))


def _schedule_contract(tx: Transaction, contract: ContractRecord) -> None:
    """Schedule the jobs of a contract that becomes active, and bill the cycles that are over."""
    # False for a contract that was over before it became active: its cycles are all past.
    runs = contract.end_date is None or contract.end_date > tx.now or cycles.renews(contract)
    if runs:
        scheduled_jobs.schedule(tx, cycles.cycle_at(contract, tx.now)[1], "cycle_end", contract.id)
    _schedule_end(tx, contract)  # before the credits: a contract grants none at the moment of its end
    credit_grants.start_schedule(tx, contract)
    # After the credits: past cycles draw them.
    bill_past_cycles(tx, contract)
    # A measurement of the first day belongs to this contract now, although another one may have billed it.
    changed = daily_usage.mark_changed(tx, contract.customer_id, contract.start_date, contract.start_date)
    statements.handle_usage_changed(tx, changed)
    if runs:
        if contract.start_date <= tx.now:
            statements.settle_present(tx, contract)
        else:
            scheduled_jobs.schedule(tx, contract.start_date, "contract_start", contract.id)


def _schedule_end(tx: Transaction, contract: ContractRecord) -> None:
    if contract.end_date is None:
        return
    # A term that is over is renewed at once, so a notice would come too late.
    if cycles.renews(contract) and contract.end_date > tx.now:
        scheduled_jobs.schedule(tx, contract.end_date - RENEWAL_NOTICE, "renewal_notice", contract.id)
    scheduled_jobs.schedule(tx, contract.end_date, "contract_end", contract.id)


def _event_details(tx: Transaction, contract: Contract) -> dict[str, Any]:
    customer = customers.find(tx, contract.customer_id)
    return {
        "date": tx.now,
        "contract_end_date": contract.end_date,
        "contract_name": contracts.display_name(contract),
        "contract_id": contract.id,
        "customer_name": customer.name or customer.id,
        "is_trial": contract.is_trial is True,
    }
