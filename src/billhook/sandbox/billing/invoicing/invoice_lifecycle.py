"""The lifecycle of an issued invoice: approval, sending, payment, and its due date.

No mail leaves the sandbox. Source: spec, "States and transitions", Invoice billingStatus; "Events";
"Resources and their fields", Invoice, paymentInfo, and Customer, contacts. The specification shows neither
the approving operation nor the transitions, nor which contact is the primary one: the invoice goes to every
contact that receives invoices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal, localcontext
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, StrictStr

from billhook import events
from billhook.fields.strict_json import datetime_text
from billhook.fields.types import BillingStatus, ExactDecimal
from billhook.resources import DepositTo, PaymentInfo
from billhook.sandbox import scheduled_jobs
from billhook.sandbox.billing.contracts import customers
from billhook.sandbox.billing.credits.credit_grants import grant, has_expired
from billhook.sandbox.billing.credits.credit_pools import LedgerReference
from billhook.sandbox.billing.invoicing import invoices
from billhook.sandbox.billing.invoicing.invoices import InvoiceRecord, page_url
from billhook.sandbox.billing.usage import money
from billhook.sandbox.billing.usage.money import EXACT
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import SandboxResource
from billhook.sandbox.storage.database import Transaction, new_id
from billhook.sandbox.storage.repository import to_document
from billhook.sandbox.webhooks.outbox import raise_event

DEFAULT_DUE_DAYS = 30
"""The days until payment is due if neither the contract nor the customer has a value."""
BOUNCING_DOMAIN = "invalid"
"""Mail to this top-level domain bounces. Source: RFC 2606, section 2."""
PROVIDER = "Sandbox"
"""The name of the sandbox's payment provider."""
OVERDUE_AGAIN = timedelta(days=1)
"""How long an invoice stays Rejected if a payment fails after its due date, before it is Overdue again."""
_ACCOUNT = DepositTo(id="acc_sandbox", name="Sandbox account", integration=PROVIDER)


class Outcome(StrEnum):
    """The outcome of a payment."""

    PAID = "paid"
    FAILED = "failed"


class Payment(SandboxResource, register=False):
    """A payment to make, with its outcome."""

    outcome: Annotated[Outcome, Field(examples=["paid"])]
    """Outcome of the payment: paid or failed."""
    amount: Annotated[ExactDecimal | None, Field(examples=[])] = None
    """Amount in the invoice's currency; all that is due by default."""
    failure_reason: Annotated[StrictStr | None, Field(examples=["card_declined"])] = None
    """Reason of the failure."""
    payment_method: StrictStr | None = None
    """Payment method; Card by default."""


def approve(tx: Transaction, invoice: InvoiceRecord) -> InvoiceRecord:
    """Approve and email an invoice, so that it can be paid. Grants the credits of a top-up.

    Emits InvoiceApproved, and the events of `send_invoice`.
    """
    if invoice.approved_at is not None:
        raise invalid_request("the invoice is approved already", code="already_approved")
    if has_expired(tx, invoice.credit_grant):
        raise invalid_request(
            "the credits of this top-up have expired: its invoice is void, make another",
            code="credits_expired",
        )
    customer = customers.find(tx, str(invoice.customer_id))
    days = (
        int(customer.due_days or DEFAULT_DUE_DAYS) if invoice.payment_days is None else invoice.payment_days
    )
    # Counted from the approval: until then the invoice may still change.
    due_at = tx.now + timedelta(days=days)
    invoice = invoices.INVOICES.change(tx, invoice, {"approvedAt": tx.now, "dueDate": due_at})
    # Approved on request before its time.
    scheduled_jobs.cancel(tx, invoice.id, "invoice_approval")
    scheduled_jobs.schedule(tx, due_at, "invoice_due", invoice.id)
    raise_event(tx, events.InvoiceApproved(date=tx.now, invoice_id=invoice.id))
    # Top-up credits are granted on approval, not on payment. Source: spec, "States and transitions".
    if invoice.credit_grant is not None:
        grant(tx, customer.id, invoice.credit_grant, LedgerReference(invoice_id=invoice.id))
    return send_invoice(tx, invoice)


def handle_approval_due(tx: Transaction, invoice_id: str) -> None:
    """Handle the job `invoice_approval`; a top-up with credits that have expired is void instead."""
    invoice = invoices.INVOICES.get(tx, invoice_id)
    if has_expired(tx, invoice.credit_grant):
        invoices.void_top_up(tx, invoice)
    else:
        approve(tx, invoice)


def send_invoice(tx: Transaction, invoice: InvoiceRecord) -> InvoiceRecord:
    """Email an approved invoice, with a link to the portal, to each address that receives invoices.

    Emits CustomerPortalLinkSent for each address; and InvoiceSendFailed if no mail was delivered, because
    there is no address or every mail bounced. An approved invoice is owed, whether it was delivered or not.
    """
    customer = customers.find(tx, str(invoice.customer_id))
    contacts = customer.contacts or []
    # isPrimary is not in the specification's model, so it is an extra field there.
    primary = [each for each in contacts if (each.model_extra or {}).get("isPrimary") is True]
    copies = [each for each in contacts if each.receive_invoice_email]
    # The primary contact's address first, and each address once.
    addresses = dict.fromkeys(each.email for each in (*primary, *copies) if each.email)
    # Every address is tried: a mail that bounces must not keep the others from theirs.
    delivered = [_send_to(tx, customer.id, address) for address in addresses]
    # One delivered mail is enough.
    if not any(delivered):
        number = invoice.invoice_number
        raise_event(tx, events.InvoiceSendFailed(invoice_id=invoice.id, invoice_number=number, date=tx.now))
    # The invoice was sent again: a payment may have changed its status already.
    if invoice.billing_status != BillingStatus.NONE:
        return invoice
    status = BillingStatus.PENDING_PAYMENT if invoice.amount_due > 0 else BillingStatus.PAID
    return change_status(tx, invoice, status)


def _send_to(tx: Transaction, customer_id: str, address: str) -> bool:
    _, at, domain = address.rpartition("@")
    fault = None
    if not at or not domain:
        fault = "the address is invalid: it needs an @ and a domain"
    elif domain.rstrip(".").rpartition(".")[2].lower() == BOUNCING_DOMAIN:
        fault = "the mail bounced: the domain does not exist"
    details: dict[str, Any] = {} if fault is None else {"error_message": fault}
    event = events.CustomerPortalLinkSent(
        customer_id=customer_id, is_successful=fault is None, email=address, date=tx.now, **details
    )
    raise_event(tx, event)
    return fault is None


def change_status(
    tx: Transaction, stored: InvoiceRecord, status: BillingStatus, changes: Mapping[str, Any] | None = None
) -> InvoiceRecord:
    """Change the status of an invoice, and other fields with it.

    Emits InvoicePaymentStatusChanged if the status changes.
    """
    before = str(stored.billing_status)
    stored = invoices.INVOICES.change(tx, stored, {**(changes or {}), "billingStatus": status.value})
    if status != before:
        event = events.InvoicePaymentStatusChanged(
            invoice_id=stored.id,
            billing_status=status,
            amount_due=stored.amount_due,
            amount_paid=stored.amount_paid,
            total=stored.amount or Decimal(0),
            due_date=stored.due_date,
            paid_at=tx.now if status is BillingStatus.PAID else None,
            invoice_pdf_url=page_url(tx, stored.id),
        )
        raise_event(tx, event)
    return stored


def pay(tx: Transaction, stored: InvoiceRecord, payment: Payment) -> InvoiceRecord:
    """Pay an invoice, or record a payment that failed. Only a payment in full makes it Paid."""
    has_failed, method = payment.outcome is Outcome.FAILED, payment.payment_method or "Card"
    # Probably the outcome is wrong: ignoring the reason would hide the mistake.
    if payment.failure_reason is not None and not has_failed:
        raise invalid_request("a payment that is paid has no failureReason", "failureReason")
    amount = _checked_amount(stored, payment.amount)
    of_customer = f"{stored.customer_id} {method}"
    optional: dict[str, Any] = {} if payment.failure_reason is None else {"note": payment.failure_reason}
    info = PaymentInfo(
        transaction_id=new_id("txn"),
        date=datetime_text(tx.now),
        payment_method=method,
        # One for each customer and method.
        payment_method_id=f"pm_{hashlib.sha256(of_customer.encode()).hexdigest()[:20]}",
        amount=amount,
        currency=stored.currency,
        status="Failed" if has_failed else "Succeeded",
        customer_id=stored.customer_id,
        deposit_to=_ACCOUNT,
        **optional,
    )
    changes = {"paymentInfo": to_document(info)}
    if has_failed:
        return _record_failure(tx, stored, amount, payment.failure_reason, changes)
    with localcontext(EXACT):
        paid = stored.amount_paid + amount
    # Exact decimals: `paid` reaches the amount to the last digit.
    whole = paid == stored.amount
    status = BillingStatus.PAID if whole else BillingStatus(str(stored.billing_status))
    return change_status(tx, stored, status, {**changes, "amountPaid": paid})


def _record_failure(
    tx: Transaction, stored: InvoiceRecord, amount: Decimal, reason: str | None, changes: Mapping[str, Any]
) -> InvoiceRecord:
    """Record a payment that was tried and failed. Emits PaymentFailed."""
    stored = change_status(tx, stored, BillingStatus.REJECTED, changes)
    event = events.PaymentFailed(
        date=tx.now,
        customer_id=str(stored.customer_id),
        invoice_id=stored.id,
        payment_provider=PROVIDER,
        amount=amount,
        currency=stored.currency,
        failure_reason=reason,
    )
    raise_event(tx, event)
    if stored.due_date is not None and stored.due_date <= tx.now:
        # The due date has passed, so no other job would make it Overdue again.
        scheduled_jobs.cancel(tx, stored.id, "invoice_due")
        scheduled_jobs.schedule(tx, tx.now + OVERDUE_AGAIN, "invoice_due", stored.id)
    return stored


def handle_invoice_due(tx: Transaction, invoice_id: str) -> None:
    """Handle the job `invoice_due`: an unpaid invoice becomes Overdue, unless nothing is due."""
    stored = invoices.INVOICES.get(tx, invoice_id)
    # The job may be left over from before a payment, so the status is checked again.
    unpaid = stored.billing_status in (BillingStatus.PENDING_PAYMENT, BillingStatus.REJECTED)
    if unpaid and stored.amount_due > 0:
        change_status(tx, stored, BillingStatus.OVERDUE)


def _checked_amount(stored: InvoiceRecord, amount: Decimal | None) -> Decimal:
    """Return the amount of a payment; reject a payment that the invoice cannot take."""
    if stored.approved_at is None:
        raise invalid_request("the invoice is not approved yet: approve it first", code="not_approved")
    if stored.billing_status == BillingStatus.PAID:
        raise invalid_request("the invoice is paid already", code="already_paid")
    due = stored.amount_due
    if amount is None:
        return due
    if not 0 < amount <= due:
        raise invalid_request("amount must be above zero, and no more than is due", "amount")
    smallest = money.smallest_unit(stored.currency)
    with localcontext(EXACT):
        # Half a cent could never be settled: the rest due would not be payable.
        if amount != amount.quantize(smallest):
            raise invalid_request(f"amount must be a multiple of {smallest} {stored.currency}", "amount")
    return amount
