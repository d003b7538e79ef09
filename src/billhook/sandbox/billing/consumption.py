"""How much customers have used of what they were sold. Source: spec, "Product consumption"; "Events"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from billhook.resources import ProductConsumption
from billhook.sandbox.billing import contracts, customers
from billhook.sandbox.billing.announcements import announce
from billhook.sandbox.billing.contracts import KeptContract
from billhook.sandbox.billing.lines import Cycle, draw, lines
from billhook.sandbox.billing.rollups import Key
from billhook.sandbox.billing.subjects import subjects
from billhook.sandbox.transaction import Transaction

__all__ = ["cycle_began", "of_customer", "usage_changed"]


def usage_changed(tx: Transaction, changed: Collection[Key]) -> None:
    """Announce what these rows of usage have passed, and draw credits for it.

    Costs a look-up where nobody is under contract, and reads nothing but the products that are concerned.
    """
    meters_of: defaultdict[str, set[str]] = defaultdict(set)
    for customer_id, meter_id, *_ in changed:
        meters_of[customer_id].add(meter_id)
    for contract in contracts.in_force(tx, meters_of, tx.now) if meters_of else ():
        _tell(tx, contract, meters_of[contract.customer_id])


def cycle_began(tx: Transaction, contract: KeptContract) -> None:
    """The same for usage that was there before the contract, or before its present cycle."""
    _tell(tx, contract, None)


def of_customer(tx: Transaction, customer_id: str) -> list[ProductConsumption]:
    """The customer's products in their present cycles; none without a contract in force."""
    return [
        subject.consumption()
        for contract in contracts.active(tx, customer_id, tx.now)
        for line in lines(tx, Cycle(contract, *contracts.cycle_at(contract, tx.now)))
        for subject in subjects(line)
    ]


def _tell(tx: Transaction, contract: KeptContract, only_meters: Collection[str] | None) -> None:
    cycle = Cycle(contract, *contracts.cycle_at(contract, tx.now))
    customer = customers.find(tx, contract.customer_id)
    if customers.is_inactive(customer):
        return
    for line in lines(tx, cycle, only_meters):
        for subject in subjects(line):
            announce(tx, cycle, customer, subject)
        for use in line.uses:
            draw(tx, cycle, use)
