"""The end of a contract's billing cycle. Source: spec, "Events", Overage; "Endpoints", Invoices."""

from __future__ import annotations

from datetime import datetime, timedelta

from billhook.resources import ContractStatus
from billhook.sandbox.billing import (
    agenda,
    billed_lines,
    consumption,
    contracts,
    customers,
    invoices,
    late_usage,
    overages,
    usage_cuts,
)
from billhook.sandbox.billing.contracts import KeptContract
from billhook.sandbox.billing.lines import Cycle
from billhook.sandbox.billing.statements import statement
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.transaction import Transaction

__all__ = ["MOST_PAST", "bill", "bill_past", "end_cycle"]

MOST_PAST = 400
"""Cycles that may be over when a contract comes into force: more than a year of days."""


def end_cycle(tx: Transaction, contract_id: str) -> None:
    """The step `cycle_end`: bill the cycle that is over, and come back at the end of the next."""
    contract = contracts.find(tx, contract_id)
    bill(tx, contract, contracts.cycle_at(contract, tx.now - timedelta(microseconds=1)))
    ends = contract.end_date is not None and not contracts.renews(contract)
    if contract.status == ContractStatus.ACTIVE and not (ends and contract.end_date == tx.now):
        next_end = contracts.cycle_at(contract, tx.now)[1]
        usage_cuts.cut(tx, contract.customer_id, [next_end])
        agenda.add(tx, next_end, "cycle_end", contract.id)
        consumption.cycle_began(tx, contract)


def bill_past(tx: Transaction, contract: KeptContract) -> None:
    """Bill at once what was over before a contract came into force; refused if that is too much."""
    past = contracts.past_cycles(contract, tx.now, MOST_PAST)
    if len(past) > MOST_PAST:
        raise invalid_request(
            f"the contract began more than {MOST_PAST} billing cycles ago: begin later, or bill less often",
            "startDate",
        )
    running = contracts.cycle_at(contract, tx.now)
    borders = [moment for cycle in (*past, running) for moment in cycle]
    usage_cuts.cut(tx, contract.customer_id, [*borders, contract.end_date])
    for cycle in past:
        bill(tx, contract, cycle)


def bill(tx: Transaction, contract: KeptContract, cycle: tuple[datetime, datetime]) -> None:
    """Issue the invoices of a cycle, with what came late for those before it; none for an Inactive customer.

    What has pricing.issuedSeparately is on an invoice of its own. An invoice for nothing is issued, too.
    Raises Overage for each product that was used beyond its commitment, also where that costs nothing.
    """
    if customers.is_inactive(customers.find(tx, contract.customer_id)):
        return
    of_cycle = Cycle(contract, *cycle)
    items = statement(tx, of_cycle)
    late = late_usage.bill(tx, contract)
    together = [item for item in items if not item.charge.issued_separately]
    apart = [[item] for item in items if item.charge.issued_separately]
    for each in [together, *apart] if together or not apart else apart:
        keys = {item.key for item in each}
        charges = [*(item.charge for item in each), *(charge for key, charge in late if key in keys)]
        invoice = invoices.issue_cycle(tx, contract, cycle, charges)
        billed_lines.keep(tx, of_cycle, invoice.id, each)
        for charge in charges:
            if charge.exceeded:
                overages.tell(tx, invoice, charge)
