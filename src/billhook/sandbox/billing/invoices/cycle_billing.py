"""The end of a contract's billing cycle. Source: spec, "Events", Overage; "Endpoints", Invoices."""

from __future__ import annotations

from datetime import datetime, timedelta

from billhook.resources import ContractStatus
from billhook.sandbox.billing import customers, metered_items, scheduled_jobs
from billhook.sandbox.billing.contracts import contracts, cycles
from billhook.sandbox.billing.contracts.cycles import ContractRecord
from billhook.sandbox.billing.invoices import invoices, late_usage
from billhook.sandbox.billing.invoices.statements import statement
from billhook.sandbox.billing.line_items import ContractCycle
from billhook.sandbox.billing.usage import daily_usage
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["MAX_PAST", "bill_cycle", "bill_past_cycles", "handle_cycle_end"]

MAX_PAST = 400
"""The most cycles that may be over when a contract becomes active: more than a year of daily ones."""


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
        metered_items.handle_cycle_started(tx, contract)


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
    """Issue the invoices of a cycle, including late usage of earlier cycles; none for an Inactive customer.

    Products with pricing.issuedSeparately get an invoice of their own. An invoice for zero is issued, too.
    Emits Overage for each product used beyond its commitment, also where that is free of charge.
    """
    if customers.is_inactive(customers.find(tx, contract.customer_id)):
        return
    of_cycle = ContractCycle(contract, *cycle)
    items = statement(tx, of_cycle)
    # After this cycle's statement: late usage draws only the credits that are left.
    late = late_usage.late_charges(tx, contract)
    together = [item for item in items if not item.charge.issued_separately]
    apart = [[item] for item in items if item.charge.issued_separately]
    # An empty invoice is left out only if separate ones bill the cycle.
    for each in [together, *apart] if together or not apart else apart:
        keys = {item.key for item in each}
        charges = [*(item.charge for item in each), *(charge for key, charge in late if key in keys)]
        invoice = invoices.issue_cycle_invoice(tx, contract, cycle, charges)
        late_usage.store_billed_lines(tx, of_cycle, invoice.id, each)
        for charge in charges:
            if charge.exceeded:
                invoices.raise_overage(tx, invoice, charge)
