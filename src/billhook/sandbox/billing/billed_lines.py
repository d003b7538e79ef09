"""What was billed for the usage of each line of a contract in each cycle: late usage is reckoned from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, insert, select, update

from billhook.sandbox.billing.lines import Cycle
from billhook.sandbox.billing.rating import FIGURES, Charge
from billhook.sandbox.billing.rollups import Key
from billhook.sandbox.billing.statements import Item
from billhook.sandbox.storage.bulk import among
from billhook.sandbox.storage.tables.billing import billed_line, contract, invoice
from billhook.sandbox.storage.types import moment
from billhook.sandbox.transaction import Transaction

__all__ = ["BilledLine", "change", "keep", "late", "mark_late", "of_usage"]

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class BilledLine:
    """A line of a contract in a cycle that was billed."""

    key: str
    contract_id: str
    customer_id: str
    cycle_start: datetime
    cycle_end: datetime
    invoice_id: str
    position: int
    """Where its own charge stands on that invoice."""
    is_approved: bool
    """Is that invoice?"""
    charge: Charge
    """All that was billed for it so far."""


def keep(tx: Transaction, cycle: Cycle, invoice_id: str, items: Sequence[Item]) -> None:
    """Put down what an invoice bills for a cycle, where usage decides about it: its lines are `items`."""
    for position, item in enumerate(items):
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


def change(tx: Transaction, billed: BilledLine, charge: Charge) -> None:
    """Put down that `charge` is billed for it now."""
    tx.connection.execute(update(billed_line).where(_this(billed)).values(late=False, **_figures(charge)))


def mark_late(tx: Transaction, billed: BilledLine) -> None:
    """Put down that there is usage of it which is not billed."""
    tx.connection.execute(update(billed_line).where(_this(billed)).values(late=True))


def of_usage(tx: Transaction, changed: Collection[Key]) -> list[BilledLine]:
    """Those that these rows of usage may concern, oldest first.

    One look-up, which finds nothing where all cycles of these rows are yet to be billed.
    """
    used: defaultdict[str, set[datetime]] = defaultdict(set)
    for customer_id, _, _, since in changed:
        used[customer_id].add(moment(since))
    if not used:
        return []
    found = _read(
        tx,
        among(tx.connection, billed_line.c.customer_id, used),
        billed_line.c.cycle_end > min(min(each) for each in used.values()),
    )
    # A measurement counts to the cycle that begins on its day, though its row begins before that.
    return [
        billed
        for billed, counted_from in found
        if any(counted_from - _DAY < since < billed.cycle_end for since in used[billed.customer_id])
    ]


def late(tx: Transaction, *, contract_id: str | None = None) -> list[BilledLine]:
    """Those with usage that is not billed, oldest first: of a contract, or of all that are over."""
    if contract_id is not None:
        these = billed_line.c.contract_id == contract_id
    else:
        over = (contract.c.status != "Active") | contract.c.deleted_at.is_not(None)
        these = billed_line.c.contract_id.in_(select(contract.c.id).where(over))
    return [billed for billed, _ in _read(tx, billed_line.c.late.is_(True), these)]


def _read(tx: Transaction, *where: ColumnElement[bool]) -> list[tuple[BilledLine, datetime]]:
    """The lines that fit, each with the moment from when on usage decides about it."""
    rows = tx.connection.execute(
        select(billed_line, invoice.c.approved_at)
        .join(invoice, invoice.c.id == billed_line.c.invoice_id)
        .where(*where)
        .order_by(billed_line.c.contract_id, billed_line.c.cycle_start, billed_line.c.key)
    )
    return [(_billed(row), row.counted_from) for row in rows]


def _billed(row: Row[Any]) -> BilledLine:
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


def _this(billed: BilledLine) -> ColumnElement[bool]:
    return and_(billed_line.c.key == billed.key, billed_line.c.cycle_start == billed.cycle_start)
