"""The state of an invoice's payment: paid, refused, or late.

Source: spec, "States and transitions", Invoice billingStatus; "Resources and their fields", Invoice,
paymentInfo; "Events". The transitions are not shown: `_MOVES` are the sandbox's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal, localcontext
from types import MappingProxyType
from typing import Any

from billhook.events import InvoicePaymentStatusChanged, PaymentFailed
from billhook.resources import DepositTo, PaymentInfo
from billhook.sandbox.billing import agenda, currencies, invoice_links, invoices
from billhook.sandbox.billing.exact import EXACT
from billhook.sandbox.billing.invoice_fields import KeptInvoice
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.documents import as_document
from billhook.sandbox.transaction import Transaction, new_id
from billhook.wire.statuses import BillingStatus
from billhook.wire.strict_json import moment_text

__all__ = ["OVERDUE_AGAIN", "PROVIDER", "fail", "fall_due", "move", "pay", "settle"]

PROVIDER = "Sandbox"
"""Who collects payments here."""
OVERDUE_AGAIN = timedelta(days=1)
"""How long an invoice whose payment fails after its due date is Rejected, before it is Overdue again."""

_ACCOUNT = DepositTo(id="acc_sandbox", name="Sandbox account", integration=PROVIDER)

_MOVES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        BillingStatus.NONE: frozenset(
            {BillingStatus.PENDING_PAYMENT, BillingStatus.PAID, BillingStatus.REJECTED}
        ),
        BillingStatus.PENDING_PAYMENT: frozenset(
            {BillingStatus.PAID, BillingStatus.REJECTED, BillingStatus.OVERDUE}
        ),
        BillingStatus.REJECTED: frozenset({BillingStatus.PAID, BillingStatus.OVERDUE}),
        BillingStatus.OVERDUE: frozenset({BillingStatus.PAID, BillingStatus.REJECTED}),
        BillingStatus.PAID: frozenset(),
    }
)


def move(
    tx: Transaction, stored: KeptInvoice, status: BillingStatus, changes: Mapping[str, Any] | None = None
) -> KeptInvoice:
    """Put it into this state, and change other fields with it.

    Raises InvoicePaymentStatusChanged, unless it was in that state.
    """
    before = str(stored.billing_status)
    if status != before and status not in _MOVES[before]:
        raise ValueError(f"an invoice that is {before} does not become {status}")
    fields = {**(changes or {}), "billingStatus": status.value}
    columns = {"billing_status": status.value}
    if "amountPaid" in fields:
        columns["amount_paid"] = fields["amountPaid"]
    stored = invoices.INVOICES.change(tx, stored, fields, **columns)
    if status != before:
        tx.raise_event(
            InvoicePaymentStatusChanged(
                invoice_id=stored.id,
                billing_status=status,
                amount_due=stored.amount_due,
                amount_paid=stored.amount_paid,
                total=stored.amount or Decimal(0),
                due_date=stored.due_date,
                paid_at=tx.now if status is BillingStatus.PAID else None,
                invoice_pdf_url=invoice_links.page_of(tx, stored.id),
            )
        )
    return stored


def pay(tx: Transaction, stored: KeptInvoice, amount: Decimal | None, method: str | None) -> KeptInvoice:
    """Pay `amount`, or all that is due. Paid in part it stays as it is; paid in full it is Paid."""
    amount = _payable(stored, amount)
    with localcontext(EXACT):
        paid = stored.amount_paid + amount
    info = _info(tx, stored, amount, method, "Succeeded", None)
    changes = {"amountPaid": paid, "paymentInfo": info}
    whole = paid == stored.amount
    status = BillingStatus.PAID if whole else BillingStatus(str(stored.billing_status))
    return move(tx, stored, status, changes)


def fail(
    tx: Transaction, stored: KeptInvoice, amount: Decimal | None, method: str | None, reason: str | None
) -> KeptInvoice:
    """A payment was tried and refused. Raises PaymentFailed."""
    amount = _payable(stored, amount)
    info = _info(tx, stored, amount, method, "Failed", reason)
    stored = move(tx, stored, BillingStatus.REJECTED, {"paymentInfo": info})
    tx.raise_event(
        PaymentFailed(
            date=tx.now,
            customer_id=str(stored.customer_id),
            invoice_id=stored.id,
            payment_provider=PROVIDER,
            amount=amount,
            currency=stored.currency,
            failure_reason=reason,
        )
    )
    if stored.due_date is not None and stored.due_date <= tx.now:
        agenda.drop(tx, stored.id, "invoice_due")
        agenda.add(tx, tx.now + OVERDUE_AGAIN, "invoice_due", stored.id)
    return stored


def settle(tx: Transaction, stored: KeptInvoice) -> KeptInvoice:
    """Of an invoice that is approved: it waits for payment; with nothing to pay it is Paid."""
    if stored.billing_status != BillingStatus.NONE:
        return stored
    return move(tx, stored, BillingStatus.PENDING_PAYMENT if stored.amount_due > 0 else BillingStatus.PAID)


def fall_due(tx: Transaction, invoice_id: str) -> None:
    """The step `invoice_due`: what is not paid is overdue. What is nothing is not."""
    stored = invoices.INVOICES.get(tx, invoice_id)
    unpaid = stored.billing_status in (BillingStatus.PENDING_PAYMENT, BillingStatus.REJECTED)
    if unpaid and stored.amount_due > 0:
        move(tx, stored, BillingStatus.OVERDUE)


def _payable(stored: KeptInvoice, amount: Decimal | None) -> Decimal:
    """The amount of a payment; refused where there can be none."""
    if stored.approved_at is None:
        raise invalid_request("the invoice is not approved yet: approve it first", code="not_approved")
    if stored.billing_status == BillingStatus.PAID:
        raise invalid_request("the invoice is paid already", code="already_paid")
    due = stored.amount_due
    if amount is None:
        return due
    if not 0 < amount <= due:
        raise invalid_request("amount is above zero, and no more than is due", "amount")
    smallest = currencies.smallest(stored.currency)
    with localcontext(EXACT):
        if amount != amount.quantize(smallest):
            raise invalid_request(f"amount is in steps of {smallest} {stored.currency}", "amount")
    return amount


def _info(
    tx: Transaction, stored: KeptInvoice, amount: Decimal, method: str | None, status: str, note: str | None
) -> object:
    given: dict[str, Any] = {} if note is None else {"note": note}
    info = PaymentInfo(
        transaction_id=new_id("txn"),
        date=moment_text(tx.now),
        payment_method=method or "Card",
        payment_method_id=_method_id(str(stored.customer_id), method or "Card"),
        amount=amount,
        currency=stored.currency,
        status=status,
        customer_id=stored.customer_id,
        deposit_to=_ACCOUNT,
        **given,
    )
    return as_document(info)


def _method_id(customer_id: str, method: str) -> str:
    """The same for each payment of a customer by one method: `pm_4f0e…`."""
    return f"pm_{hashlib.sha256(f'{customer_id} {method}'.encode()).hexdigest()[:20]}"
