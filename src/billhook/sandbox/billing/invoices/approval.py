"""Approve invoices, by the clock or on request, and email them. No mail leaves the sandbox.

Source: spec, "States and transitions", the moves that are shown; "Events", InvoiceApproved, InvoiceSendFailed
and CustomerPortalLinkSent; "Resources and their fields", Customer, contacts. The approving operation is not
shown; nor is which contact is the primary one: the invoice goes to every contact that receives invoices.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from billhook.events import CustomerPortalLinkSent, InvoiceApproved, InvoiceSendFailed
from billhook.resources import Customer
from billhook.sandbox.billing import customers, scheduled_jobs
from billhook.sandbox.billing.credits.credit_grants import grant_top_up
from billhook.sandbox.billing.invoices import invoices, payments
from billhook.sandbox.billing.invoices.invoice_records import InvoiceRecord
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.storage.transaction import Transaction
from billhook.sandbox.webhooks.outbox import raise_event

__all__ = ["BOUNCING_DOMAIN", "DEFAULT_DUE_DAYS", "approve", "handle_approval_due", "send_invoice"]

DEFAULT_DUE_DAYS = 30
"""The days until payment is due if neither the contract nor the customer has a value."""
BOUNCING_DOMAIN = "invalid"
"""Mail to this top-level domain bounces. Source: RFC 2606, section 2."""


def approve(tx: Transaction, invoice: InvoiceRecord) -> InvoiceRecord:
    """Approve and email an invoice, so that it can be paid. Grants the credits of a top-up.

    Emits InvoiceApproved, and the events of `send_invoice`.
    """
    if invoice.approved_at is not None:
        raise invalid_request("the invoice is approved already", code="already_approved")
    customer = customers.find(tx, str(invoice.customer_id))
    days = (
        int(customer.due_days or DEFAULT_DUE_DAYS) if invoice.payment_days is None else invoice.payment_days
    )
    # Counted from the approval: until then the invoice may still change.
    due_at = tx.now + timedelta(days=days)
    invoice = invoices.INVOICES.change(
        tx, invoice, {"approvedAt": tx.now, "dueDate": due_at}, approved_at=tx.now, due_at=due_at
    )
    # Approved on request before its time.
    scheduled_jobs.cancel(tx, invoice.id, "invoice_approval")
    scheduled_jobs.schedule(tx, due_at, "invoice_due", invoice.id)
    raise_event(tx, InvoiceApproved(date=tx.now, invoice_id=invoice.id))
    # Top-up credits are granted on approval, not on payment.
    grant_top_up(tx, invoice)
    return send_invoice(tx, invoice)


def handle_approval_due(tx: Transaction, invoice_id: str) -> None:
    """Handle the job `invoice_approval`."""
    approve(tx, invoices.INVOICES.get(tx, invoice_id))


def send_invoice(tx: Transaction, invoice: InvoiceRecord) -> InvoiceRecord:
    """Email an approved invoice, with a link to the portal, to each address that receives invoices.

    Emits CustomerPortalLinkSent for each address; and InvoiceSendFailed if no mail was delivered, because
    there is no address or every mail bounced. An approved invoice is owed, whether it was delivered or not.
    """
    customer = customers.find(tx, str(invoice.customer_id))
    addresses = _recipients(customer)
    # Every address is tried: a mail that bounces must not keep the others from theirs.
    delivered = [_send_to(tx, customer.id, address) for address in addresses]
    # One delivered mail is enough.
    if not any(delivered):
        raise_event(
            tx, InvoiceSendFailed(invoice_id=invoice.id, invoice_number=invoice.invoice_number, date=tx.now)
        )
    return payments.open_for_payment(tx, invoice)


def _recipients(customer: Customer) -> list[str]:
    """Return the primary contact's address, then those of contacts with receiveInvoiceEmail; each once."""
    contacts = customer.contacts or []
    # isPrimary is not in the specification's model, so it is an extra field there.
    primary = [each for each in contacts if (each.model_extra or {}).get("isPrimary") is True]
    copies = [each for each in contacts if each.receive_invoice_email]
    return list(dict.fromkeys(each.email for each in (*primary, *copies) if each.email))


def _send_to(tx: Transaction, customer_id: str, address: str) -> bool:
    _, at, domain = address.rpartition("@")
    fault = None
    if not at or not domain:
        fault = "the address is invalid: it needs an @ and a domain"
    elif domain.rstrip(".").rpartition(".")[2].lower() == BOUNCING_DOMAIN:
        fault = "the mail bounced: the domain does not exist"
    details: dict[str, Any] = {} if fault is None else {"error_message": fault}
    raise_event(
        tx,
        CustomerPortalLinkSent(
            customer_id=customer_id, is_successful=fault is None, email=address, date=tx.now, **details
        ),
    )
    return fault is None
