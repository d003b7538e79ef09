"""The statement of a billing cycle: a charge for each line item of its invoices."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from decimal import Decimal

from billhook.sandbox.billing import currencies, customers
from billhook.sandbox.billing.credits import credit_schedules
from billhook.sandbox.billing.line_items import (
    ContractCycle,
    ContractLine,
    contract_lines,
    draw_credits,
    mark_invoiced,
)
from billhook.sandbox.billing.metered_items import metered_items
from billhook.sandbox.billing.rating import Charge
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["StatementItem", "rerated", "statement"]


@dataclass(frozen=True, slots=True)
class StatementItem:
    """A charge, and the contract line that it is for."""

    charge: Charge
    line: ContractLine | None = None
    """None for the charge of credits that the contract granted."""

    @property
    def key(self) -> str:
        return "" if self.line is None else self.line.key


def statement(tx: Transaction, cycle: ContractCycle) -> list[StatementItem]:
    """Return the charges for a contract's products and credits in a cycle, to be billed.

    Draws credits for usage that has not drawn them yet, so it needs a transaction that writes. A second call
    returns the same.
    """
    smallest = _smallest_unit(tx, cycle)
    # Credits have their own price: they are charged beside the lines, whether used or not.
    granted = credit_schedules.credit_charges(tx, cycle.contract.id, cycle.start, cycle.end, smallest)
    return [*_items(tx, cycle, contract_lines(tx, cycle), draws=True), *map(StatementItem, granted)]


def rerated(
    tx: Transaction, cycle: ContractCycle, keys: Collection[str], *, draws: bool
) -> list[StatementItem]:
    """Return the charges of the lines with these keys at the usage of now.

    Without `draws` no credits are drawn: for charges that will not be billed.
    """
    return _items(tx, cycle, [line for line in contract_lines(tx, cycle) if line.key in keys], draws=draws)


def _items(
    tx: Transaction, cycle: ContractCycle, of_lines: Collection[ContractLine], *, draws: bool
) -> list[StatementItem]:
    smallest = _smallest_unit(tx, cycle)
    items = []
    for line in of_lines:
        drawn = (
            replace(line, usages=[draw_credits(tx, cycle, usage) for usage in line.usages]) if draws else line
        )
        if draws:
            # Marked after all credits are drawn: what is left belongs to this invoice.
            for usage in drawn.usages:
                mark_invoiced(tx, cycle, usage)
        exceeded = any(metered.consumption().exceeded_amount > 0 for metered in metered_items(drawn))
        charge = drawn.charge(smallest)
        items.append(StatementItem(replace(charge, exceeded=exceeded and charge.units > 0), line))
    return items


def _smallest_unit(tx: Transaction, cycle: ContractCycle) -> Decimal:
    """Return the unit that amounts of the cycle's invoices are multiples of."""
    return currencies.smallest_unit(
        currencies.billing_currency(cycle.contract, customers.find(tx, cycle.contract.customer_id))
    )
