"""Sending invoices to those who want them. No mail leaves the sandbox.

Source: spec, "Resources and their fields", Customer, contacts; "Events", InvoiceSendFailed and
CustomerPortalLinkSent. Which contact is the primary one is not shown: it goes to all that receive them.
"""

from __future__ import annotations

from typing import Any

from billhook.events import CustomerPortalLinkSent, InvoiceSendFailed
from billhook.resources import Customer
from billhook.sandbox.billing import customers, payments
from billhook.sandbox.billing.invoice_fields import KeptInvoice
from billhook.sandbox.transaction import Transaction

__all__ = ["BOUNCES", "send"]

BOUNCES = "invalid"
"""Mail to an address under this top-level domain comes back. Source: RFC 2606, section 2."""


def send(tx: Transaction, invoice: KeptInvoice) -> KeptInvoice:
    """Send an approved invoice, with a link to the portal, to each address that receives invoices by mail.

    Raises CustomerPortalLinkSent for each of them. Raises InvoiceSendFailed if nobody was reached: there is
    none, or all mail comes back. What is approved is owed all the same: reached or not, it waits for payment.
    """
    customer = customers.find(tx, str(invoice.customer_id))
    addresses = _addresses(customer)
    reached = [_send_link(tx, customer.id, address) for address in addresses]
    if not any(reached):
        tx.raise_event(
            InvoiceSendFailed(invoice_id=invoice.id, invoice_number=invoice.invoice_number, date=tx.now)
        )
    return payments.settle(tx, invoice)


def _addresses(customer: Customer) -> list[str]:
    """The primary contact's, and then those of all who receive copies; each once."""
    contacts = customer.contacts or []
    primary = [each for each in contacts if (each.model_extra or {}).get("isPrimary") is True]
    copies = [each for each in contacts if each.receive_invoice_email]
    return list(dict.fromkeys(each.email for each in (*primary, *copies) if each.email))


def _send_link(tx: Transaction, customer_id: str, address: str) -> bool:
    _, at, domain = address.rpartition("@")
    fault = None
    if not at or not domain:
        fault = "the address is none: it needs an @ and a domain"
    elif domain.rstrip(".").rpartition(".")[2].lower() == BOUNCES:
        fault = "the mail came back: no such domain"
    told: dict[str, Any] = {} if fault is None else {"error_message": fault}
    tx.raise_event(
        CustomerPortalLinkSent(
            customer_id=customer_id, is_successful=fault is None, email=address, date=tx.now, **told
        )
    )
    return fault is None
