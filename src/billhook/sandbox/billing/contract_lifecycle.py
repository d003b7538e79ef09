"""The lifecycle of contracts: creation, activation, the end of each billing cycle, renewal, expiry, deletion.

Source: spec, "Resources and their fields", Contract; "Endpoints", Contracts; Invoices; "Events".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from billhook.events import ContractCreated, ContractExpired, NewCustomerWithoutContract, UpcomingRenewal
from billhook.resources import Contract, ContractStatus, NewContract
from billhook.sandbox import scheduled_jobs
from billhook.sandbox.billing import new_contracts
from billhook.sandbox.billing.contracts import contracts, custom_fields, customers
from billhook.sandbox.billing.contracts.contracts import CONTRACTS
from billhook.sandbox.billing.credits import credit_grants, credit_pools
from billhook.sandbox.billing.invoicing import invoices, statements
from billhook.sandbox.billing.invoicing.line_items import ContractCycle
from billhook.sandbox.billing.usage import cycles, daily_usage, money
from billhook.sandbox.billing.usage.cycles import ContractRecord
from billhook.sandbox.billing.usage.rating import Charge
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

    A cycle throughout which it was Inactive is never billed.
    Products with pricing.issuedSeparately get an invoice of their own. An invoice for zero is issued, too.
    Emits Overage for each product used beyond its commitment, also where that is free of charge.
    """
    customer = customers.find(tx, contract.customer_id)
    if customers.is_inactive(customer):
        return
    if customers.was_inactive(tx, customer.id, *cycle):
        # Usage that was sent in advance may have drawn credits as the cycle began.
        credit_pools.expire_lots(tx, credit_pools.reverse_cycles(tx, contract.id, *cycle))
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


def bill_postponed_cycles(tx: Transaction, customer_id: str) -> None:
    """Bill the cycles of a customer that are over without an invoice, once it is not Inactive any more.

    In the order in which they ended; also of contracts that were made or activated meanwhile, whose past
    cycles may have ended long before. Then settle what was used earlier in their present cycles.
    """
    of = contract_table.c
    own = contracts.CONTRACTS.all(tx, of.customer_id == customer_id, of.in_force_at.is_not(None))
    postponed = []
    for contract in own:
        ended, billed = contracts.term(contract)[1], invoices.billed_cycle_ends(tx, contract.id)
        past = cycles.past_cycles(contract, min(tx.now, ended), sys.maxsize)
        postponed += [(cycle, contract) for cycle in past if cycle[1] not in billed]
    for cycle, contract in sorted(postponed, key=lambda each: each[0][1]):
        bill_cycle(tx, contract, cycle)
    for contract in contracts.in_force(tx, [customer_id], tx.now):
        statements.settle_present(tx, contract)


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

    Its running cycle is not billed: the credits that were drawn for it go back, and its usage passes to other
    contracts that sell the same.
    """
    # Otherwise its jobs would look for a contract that is not found any more.
    scheduled_jobs.cancel(tx, contract.id)
    deleted = CONTRACTS.change(tx, contract, {"deletedAt": tx.now})
    cycle_start = contracts.term(deleted)[1]
    lots = credit_pools.reverse_cycles(tx, contract.id, cycle_start, MAX_TIME)
    credit_pools.take_back(tx, contract.id)
    # The usage of that cycle is free for the customer's other contracts, which may have billed its days.
    changed = daily_usage.mark_changed(tx, contract.customer_id, cycle_start)
    statements.handle_usage_changed(tx, changed)
    # Only now: what the usage was paid with pays for it again, even if it could not be drawn anew.
    credit_pools.expire_lots(tx, lots)
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
    # Other contracts may have billed what is this one's now.
    changed = {
        key
        for first, last in contracts.taken_over(contracts.sellers(tx, contract), contract.id)
        for key in daily_usage.mark_changed(tx, contract.customer_id, first, last)
    }
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
