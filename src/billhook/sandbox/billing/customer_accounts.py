"""Customers as they are shown: with what they owe, and with the values of their custom fields.

Source: spec, "Resources and their fields", Customer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal, localcontext

from sqlalchemy import select

from billhook.resources import Customer
from billhook.sandbox.billing import custom_fields
from billhook.sandbox.billing.currencies import in_dollars
from billhook.sandbox.billing.exact import EXACT
from billhook.sandbox.storage.tables.billing import invoice
from billhook.sandbox.transaction import Transaction

__all__ = ["amounts", "shown"]

_NOTHING = Decimal("0.00")
_FIELDS = {
    "None": "open_amount",
    "Overdue": "overdue_amount",
    "PendingPayment": "pending_payment_amount",
    "Paid": "paid_amount",
}


def shown(tx: Transaction, stored: Sequence[Customer]) -> list[Customer]:
    """These customers, as the service shows them."""
    known = custom_fields.definitions(tx, "Customer")
    owed = amounts(tx, [each.id for each in stored])
    return [
        each.model_copy(
            update={
                "custom_field_values": custom_fields.with_defaults(known, each.custom_field_values or []),
                **owed[each.id],
            }
        )
        for each in stored
    ]


def amounts(tx: Transaction, customer_ids: Collection[str]) -> dict[str, dict[str, Decimal]]:
    """The five amounts of each of these customers, by the names of Customer's fields; of 1000 at most.

    In US dollars, each invoice at the rate of the moment when it was issued. What is outstanding is what is
    still due, of Rejected invoices too; the four by status are of whole invoices.
    """
    found = {
        customer_id: dict.fromkeys((*_FIELDS.values(), "total_outstanding_amount"), _NOTHING)
        for customer_id in customer_ids
    }
    rows = tx.connection.execute(
        select(
            invoice.c.customer_id,
            invoice.c.billing_status,
            invoice.c.amount,
            invoice.c.amount_paid,
            invoice.c.usd_rate,
        ).where(invoice.c.customer_id.in_(customer_ids))
    )
    with localcontext(EXACT):
        for row in rows:
            owed = found[row.customer_id]
            if row.billing_status in _FIELDS:
                owed[_FIELDS[row.billing_status]] += in_dollars(row.amount, row.usd_rate)
            if row.billing_status != "Paid":
                due = row.amount - row.amount_paid
                owed["total_outstanding_amount"] += in_dollars(due, row.usd_rate)
    return found
