"""Invoiced amounts by month, for charts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, localcontext

from sqlalchemy import select

from billhook.sandbox.billing.decimals import EXACT, ZERO
from billhook.sandbox.clock import add_months
from billhook.sandbox.storage.tables.billing import invoice
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["InvoicedMonth", "invoices_by_month"]

_CENT = Decimal("0.01")


@dataclass(slots=True)
class InvoicedMonth:
    """What was invoiced in a month, in US dollars at the rates of the dates of issue, by `billingStatus`."""

    month: datetime
    """Its first midnight, UTC."""
    count: int = 0
    amounts: dict[str, Decimal] = field(default_factory=lambda: defaultdict(lambda: ZERO))

    @property
    def total(self) -> Decimal:
        """The amount of all states, in US dollars and cents."""
        with localcontext(EXACT):
            return sum(self.amounts.values(), ZERO).quantize(_CENT)


def invoices_by_month(
    tx: Transaction, months: int, customer_id: str | None = None
) -> Sequence[InvoicedMonth]:
    """Return the last `months` months up to the current one of the sandbox's time, oldest first."""
    current = tx.now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    found = {
        month: InvoicedMonth(month)
        for month in (add_months(current, -back) for back in range(months - 1, -1, -1))
    }
    of = invoice.c
    where = [of.issued_at >= min(found), *([] if customer_id is None else [of.customer_id == customer_id])]
    query = select(of.issued_at, of.billing_status, of.amount, of.usd_rate).where(*where)
    for issued_at, status, amount, rate in tx.connection.execute(query):
        month = found.get(issued_at.replace(day=1, hour=0, minute=0, second=0, microsecond=0))
        if month is not None:
            month.count += 1
            with localcontext(EXACT):
                month.amounts[status] += amount * rate
    return list(found.values())
