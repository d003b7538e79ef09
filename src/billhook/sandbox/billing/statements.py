"""What a cycle of a contract comes to: a charge for each line item of its invoices."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from decimal import Decimal

from billhook.sandbox.billing import credit_schedules, currencies, customers
from billhook.sandbox.billing.lines import Cycle, Line, draw, lines, settle
from billhook.sandbox.billing.rating import Charge
from billhook.sandbox.billing.subjects import subjects
from billhook.sandbox.transaction import Transaction

__all__ = ["Item", "rerated", "statement"]


@dataclass(frozen=True, slots=True)
class Item:
    """A charge, and what it is for."""

    charge: Charge
    line: Line | None = None
    """None for credits that the contract granted."""

    @property
    def key(self) -> str:
        return "" if self.line is None else self.line.key


def statement(tx: Transaction, cycle: Cycle) -> list[Item]:
    """What a contract's products and credits cost in a cycle; to be billed.

    Draws the credits that the usage has not drawn yet, so it needs a transaction that writes; called again
    it gives the same.
    """
    smallest = _smallest(tx, cycle)
    granted = credit_schedules.charges(tx, cycle.contract.id, cycle.start, cycle.end, smallest)
    return [*_items(tx, cycle, lines(tx, cycle), draws=True), *map(Item, granted)]


def rerated(tx: Transaction, cycle: Cycle, keys: Collection[str], *, draws: bool) -> list[Item]:
    """The same of the lines with these keys, by the usage that there is now.

    Without `draws` no credits are drawn for it: it is not to be billed.
    """
    return _items(tx, cycle, [line for line in lines(tx, cycle) if line.key in keys], draws=draws)


def _items(tx: Transaction, cycle: Cycle, of_lines: Collection[Line], *, draws: bool) -> list[Item]:
    smallest = _smallest(tx, cycle)
    items = []
    for line in of_lines:
        drawn = replace(line, uses=[draw(tx, cycle, use) for use in line.uses]) if draws else line
        if draws:
            for use in drawn.uses:
                settle(tx, cycle, use)
        exceeded = any(subject.consumption().exceeded_amount > 0 for subject in subjects(drawn))
        charge = drawn.charge(smallest)
        items.append(Item(replace(charge, exceeded=exceeded and charge.units > 0), line))
    return items


def _smallest(tx: Transaction, cycle: Cycle) -> Decimal:
    """What amounts of its invoices are multiples of."""
    return currencies.smallest(currencies.of(cycle.contract, customers.find(tx, cycle.contract.customer_id)))
