"""Approving invoices: by the clock, or by hand.

Source: spec, "States and transitions", the moves that are shown; "Events", InvoiceApproved. The approving
operation is not shown.
"""

from __future__ import annotations

from datetime import timedelta

from billhook.events import InvoiceApproved
from billhook.sandbox.billing import agenda, customers, invoices, sending_out
from billhook.sandbox.billing.credits import grant_of_invoice
from billhook.sandbox.billing.invoice_fields import KeptInvoice
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.transaction import Transaction

__all__ = ["DUE_DAYS", "approve", "approve_by_time"]

DUE_DAYS = 30
"""Days to pay in, where neither the contract nor the customer says any."""


def approve(tx: Transaction, invoice: KeptInvoice) -> KeptInvoice:
    """Approve and send it; from now on it can be paid. A top-up's credits are granted.

    Raises InvoiceApproved, and what sending raises.
    """
    if invoice.approved_at is not None:
        raise invalid_request("the invoice is approved already", code="already_approved")
    customer = customers.find(tx, str(invoice.customer_id))
    days = int(customer.due_days or DUE_DAYS) if invoice.payment_days is None else invoice.payment_days
    due_at = tx.now + timedelta(days=days)
    invoice = invoices.INVOICES.change(
        tx, invoice, {"approvedAt": tx.now, "dueDate": due_at}, approved_at=tx.now, due_at=due_at
    )
    agenda.drop(tx, invoice.id, "invoice_approval")
    agenda.add(tx, due_at, "invoice_due", invoice.id)
    tx.raise_event(InvoiceApproved(date=tx.now, invoice_id=invoice.id))
    grant_of_invoice(tx, invoice)
    return sending_out.send(tx, invoice)


def approve_by_time(tx: Transaction, invoice_id: str) -> None:
    """The step `invoice_approval`."""
    approve(tx, invoices.INVOICES.get(tx, invoice_id))
