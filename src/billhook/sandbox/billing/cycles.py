"""The end of a contract's billing cycle. Source: spec, "Events", Overage; "Endpoints", Invoices."""

from __future__ import annotations

from datetime import timedelta

from billhook.events import Overage
from billhook.resources import ContractStatus
from billhook.sandbox.billing import agenda, consumption, contracts, customers, invoices
from billhook.sandbox.billing.invoice_fields import KeptInvoice
from billhook.sandbox.billing.rating import Charge
from billhook.sandbox.transaction import Transaction

__all__ = ["end_cycle"]


def end_cycle(tx: Transaction, contract_id: str) -> None:
    """The step `cycle_end`: bill the cycle that is over, and come back at the end of the next.

    What has pricing.issuedSeparately is on an invoice of its own. An invoice for nothing is issued, too.
    Raises Overage for each product that was used beyond its commitment.
    """
    contract = contracts.find(tx, contract_id)
    cycle = contracts.cycle_at(contract, tx.now - timedelta(microseconds=1))
    charges = consumption.statement(tx, contract, *cycle)
    together = [charge for charge in charges if not charge.issued_separately]
    apart = [[charge] for charge in charges if charge.issued_separately]
    for each in [together, *apart] if together or not apart else apart:
        invoice = invoices.issue_cycle(tx, contract, cycle, each)
        for charge in each:
            if charge.overage > 0:
                _tell_overage(tx, invoice, charge)
    ends = contract.end_date is not None and not contracts.renews(contract)
    if contract.status == ContractStatus.ACTIVE and not (ends and contract.end_date == tx.now):
        agenda.add(tx, contracts.cycle_at(contract, tx.now)[1], "cycle_end", contract.id)
        consumption.cycle_began(tx, contract)


def _tell_overage(tx: Transaction, invoice: KeptInvoice, charge: Charge) -> None:
    customer = customers.find(tx, str(invoice.customer_id))
    tx.raise_event(
        Overage(
            date=tx.now,
            overage_amount=charge.overage,
            invoice_id=invoice.id,
            customer_id=customer.id,
            customer_name=customer.name or customer.id,
            currency=invoice.currency,
        )
    )
