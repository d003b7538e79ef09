"""Telling of usage beyond what was provisioned. Source: spec, "Events", Overage."""

from __future__ import annotations

from billhook.events import Overage
from billhook.sandbox.billing import customers
from billhook.sandbox.billing.invoice_fields import KeptInvoice
from billhook.sandbox.billing.rating import Charge
from billhook.sandbox.transaction import Transaction

__all__ = ["tell"]


def tell(tx: Transaction, invoice: KeptInvoice, charge: Charge) -> None:
    """Raise Overage for a line of an invoice."""
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
