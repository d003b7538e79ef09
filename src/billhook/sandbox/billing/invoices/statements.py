"""The statement of a billing cycle, a charge for each line item; and usage that comes after it.

Late usage is usage of billing cycles that are billed already. Until the cycle's invoice is approved, the
invoice is rewritten. Afterwards the contract's next invoice charges the difference between what the cycle
amounts to now and what was billed for it. If no invoice follows, the month-end report lists the difference.
The specification does not define late usage. The table `billed_line` stores what was billed for each line
of a cycle, to calculate the difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, insert, select, update

from billhook.sandbox.billing import customers, money
from billhook.sandbox.billing.contracts import contracts
from billhook.sandbox.billing.contracts.cycles import ContractRecord
from billhook.sandbox.billing.credits import credit_schedules
from billhook.sandbox.billing.invoices import invoices
from billhook.sandbox.billing.line_items import (
    ContractCycle,
    ContractLine,
    contract_lines,
    draw_credits,
    mark_invoiced,
)
from billhook.sandbox.billing.metered_items import metered_items
from billhook.sandbox.billing.rating import FIGURES, Charge
from billhook.sandbox.billing.usage.daily_usage import UsageKey
from billhook.sandbox.storage.columns import from_microseconds, in_texts
from billhook.sandbox.storage.tables.billing import billed_line, contract, invoice
from billhook.sandbox.storage.transaction import Transaction

_DAY = timedelta(days=1)


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
    """Return the charges for a contract's products in a cycle, and for credits it granted, to be billed once.

    Draws credits for usage that has not drawn them yet.
    """
    smallest = _smallest_unit(tx, cycle)
    # Credits have their own price: they are charged beside the lines, whether used or not.
    granted = credit_schedules.take_credit_charges(tx, cycle.contract.id, cycle.end, smallest)
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
    return money.smallest_unit(
        money.billing_currency(cycle.contract, customers.find(tx, cycle.contract.customer_id))
    )


@dataclass(frozen=True, slots=True)
class BilledLine:
    """A contract line in a cycle that was billed."""

    key: str
    contract_id: str
    customer_id: str
    cycle_start: datetime
    cycle_end: datetime
    invoice_id: str
    position: int
    """The position of its charge on the invoice."""
    is_approved: bool
    """True if that invoice is approved."""
    charge: Charge
    """All that was billed for the line so far."""


def handle_usage_changed(tx: Transaction, changed: Iterable[UsageKey]) -> None:
    """Handle changed rows of daily usage: rewrite invoices, or mark lines for the contract's next one.

    Emits Overage for a product whose usage this takes beyond its commitment.
    """
    for cycle, billed in _by_cycle(tx, _lines_of_usage(tx, list(changed))):
        _rewrite_invoices(tx, cycle, [each for each in billed if not each.is_approved])
        for each in billed:
            if each.is_approved:
                _mark_late(tx, each)


def late_charges(tx: Transaction, contract: ContractRecord) -> list[tuple[str, Charge]]:
    """Return the charges for late usage of a contract's cycles, with the keys of their lines; once."""
    found = []
    for billed, charge in _differences(tx, _lines_with_late_usage(tx, contract_id=contract.id), draws=True):
        span = f"late usage of {billed.cycle_start:%Y-%m-%d} to {billed.cycle_end:%Y-%m-%d}"
        found.append((billed.key, replace(charge, product_name=f"{charge.product_name}, {span}")))
    return found


def write_off(tx: Transaction) -> list[tuple[BilledLine, Charge]]:
    """Return the charges for late usage that no invoice will bill, with their lines; once.

    Draws no credits.
    """
    return list(_differences(tx, _lines_with_late_usage(tx), draws=False))


def _rewrite_invoices(tx: Transaction, cycle: ContractCycle, billed: Sequence[BilledLine]) -> None:
    by_key = {each.key: each for each in billed}
    changed: defaultdict[str, dict[int, Charge]] = defaultdict(dict)
    exceeded: list[tuple[str, Charge]] = []
    for item in rerated(tx, cycle, by_key, draws=True) if by_key else ():
        before = by_key[item.key]
        difference = item.charge.minus(before.charge)
        if not difference.is_zero:
            _update_charge(tx, before, item.charge)
            changed[before.invoice_id][before.position] = item.charge
            if difference.exceeded:
                exceeded.append((before.invoice_id, item.charge))
    # A cycle can have several invoices (issuedSeparately), each rewritten once.
    for invoice_id, charges in changed.items():
        invoice = invoices.replace_lines(tx, invoices.INVOICES.get(tx, invoice_id), charges)
        for on_invoice, charge in exceeded:
            if on_invoice == invoice_id:
                invoices.raise_overage(tx, invoice, charge)


def _differences(
    tx: Transaction, late: Sequence[BilledLine], *, draws: bool
) -> Iterator[tuple[BilledLine, Charge]]:
    """Yield the lines with the charges beyond what was billed, and store them as billed."""
    for cycle, billed in _by_cycle(tx, late):
        by_key = {each.key: each for each in billed}
        for item in rerated(tx, cycle, by_key, draws=draws):
            before = by_key[item.key]
            # Stored also for a difference of zero: it clears the mark of late usage.
            _update_charge(tx, before, item.charge)
            difference = item.charge.minus(before.charge)
            if not difference.is_zero:
                yield before, difference


def _by_cycle(
    tx: Transaction, billed: Iterable[BilledLine]
) -> Iterator[tuple[ContractCycle, list[BilledLine]]]:
    """Yield the billing cycles of these lines, each with its lines."""
    for (contract_id, start, end), of_cycle in groupby(
        billed, lambda each: (each.contract_id, each.cycle_start, each.cycle_end)
    ):
        yield ContractCycle(contracts.CONTRACTS.get(tx, contract_id), start, end), list(of_cycle)


def store_billed_lines(
    tx: Transaction, cycle: ContractCycle, invoice_id: str, items: Sequence[StatementItem]
) -> None:
    """Store what an invoice bills for the metered lines among `items`, which are the invoice's lines."""
    for position, item in enumerate(items):
        # Only usage can arrive late: fees and granted credits are final.
        if item.line is not None and item.line.is_metered:
            values = {
                "key": item.line.key,
                "cycle_start": cycle.start,
                "cycle_end": cycle.end,
                "counted_from": item.line.counted_from,
                "customer_id": cycle.contract.customer_id,
                "contract_id": cycle.contract.id,
                "invoice_id": invoice_id,
                "position": position,
                "late": False,
            }
            tx.connection.execute(insert(billed_line).values(**values, **_figures(item.charge)))


def _update_charge(tx: Transaction, billed: BilledLine, charge: Charge) -> None:
    """Store that `charge` is billed for the line now."""
    tx.connection.execute(
        update(billed_line).where(_same_line(billed)).values(late=False, **_figures(charge))
    )


def _mark_late(tx: Transaction, billed: BilledLine) -> None:
    """Store that the line has usage which is not billed."""
    tx.connection.execute(update(billed_line).where(_same_line(billed)).values(late=True))


def _lines_of_usage(tx: Transaction, changed: Collection[UsageKey]) -> list[BilledLine]:
    """Return the billed lines that these rows of daily usage may concern, oldest first.

    It costs one query, which finds nothing if all cycles of the rows are still to be billed.
    """
    used: defaultdict[str, set[datetime]] = defaultdict(set)
    for customer_id, _, _, since in changed:
        used[customer_id].add(from_microseconds(since))
    if not used:
        return []
    found = _read_lines(
        tx,
        in_texts(billed_line.c.customer_id, used),
        billed_line.c.cycle_end > min(min(each) for each in used.values()),
    )
    # A measurement counts for the cycle that begins on its day, although its row begins at midnight before.
    return [
        billed
        for billed, counted_from in found
        if any(counted_from - _DAY < since < billed.cycle_end for since in used[billed.customer_id])
    ]


def _lines_with_late_usage(tx: Transaction, *, contract_id: str | None = None) -> list[BilledLine]:
    """Return the lines with unbilled usage, oldest first: of one contract, or of all that are over."""
    if contract_id is not None:
        these = billed_line.c.contract_id == contract_id
    else:
        # Contracts that are active get another invoice, which bills it.
        over = (contract.c.status != "Active") | contract.c.deleted_at.is_not(None)
        these = billed_line.c.contract_id.in_(select(contract.c.id).where(over))
    return [billed for billed, _ in _read_lines(tx, billed_line.c.late.is_(True), these)]


def _read_lines(tx: Transaction, *where: ColumnElement[bool]) -> list[tuple[BilledLine, datetime]]:
    """Return the matching lines, each with the moment from which on usage counts for it."""
    rows = tx.connection.execute(
        select(billed_line, invoice.c.approved_at)
        .join(invoice, invoice.c.id == billed_line.c.invoice_id)
        .where(*where)
        .order_by(billed_line.c.contract_id, billed_line.c.cycle_start, billed_line.c.key)
    )
    return [(_billed_line(row), row.counted_from) for row in rows]


def _billed_line(row: Row[Any]) -> BilledLine:
    # By the names of Charge: the columns have the same.
    figures = {name: getattr(row, name) for name in FIGURES}
    return BilledLine(
        key=row.key,
        contract_id=row.contract_id,
        customer_id=row.customer_id,
        cycle_start=row.cycle_start,
        cycle_end=row.cycle_end,
        invoice_id=row.invoice_id,
        position=row.position,
        is_approved=row.approved_at is not None,
        charge=Charge(row.product_id, row.product_name, **figures, exceeded=row.exceeded),
    )


def _figures(charge: Charge) -> dict[str, Any]:
    names = ("product_id", "product_name", *FIGURES, "exceeded")
    return {name: getattr(charge, name) for name in names}


def _same_line(billed: BilledLine) -> ColumnElement[bool]:
    return and_(billed_line.c.key == billed.key, billed_line.c.cycle_start == billed.cycle_start)
