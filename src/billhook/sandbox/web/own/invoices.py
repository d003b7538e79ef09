"""Approving, sending and paying invoices."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from billhook.resources import Resource
from billhook.sandbox.billing import approval, invoices, payments, sending_out
from billhook.sandbox.billing.invoice_fields import ShownInvoiceResponse
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import Number, Text

__all__ = ["GROUP"]

GROUP = Group("_sandbox/invoices", prefix="/_sandbox/invoices")


class Outcome(StrEnum):
    """How a payment ends."""

    PAID = "paid"
    FAILED = "failed"


class Payment(Resource, register=False):
    """A payment to be made, and how it ends."""

    outcome: Annotated[Outcome, Field(description="paid or failed.", examples=["paid"])]
    amount: Annotated[
        Number | None, Field(description="How much; all that is due if not given.", examples=[])
    ] = None
    failure_reason: Annotated[
        Text | None, Field(description="Why it failed, if it did.", examples=["card_declined"])
    ] = None
    payment_method: Annotated[Text | None, Field(description="How; Card if not given.")] = None


@GROUP.operation("POST", "/{invoiceId}/approve", gives=ShownInvoiceResponse)
def approve(call: Call[None]) -> ShownInvoiceResponse:
    """Approve an invoice now, and send it."""
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    return ShownInvoiceResponse(invoice=approval.approve(call.tx, invoice))


@GROUP.operation("POST", "/{invoiceId}/send", gives=ShownInvoiceResponse)
def send(call: Call[None]) -> ShownInvoiceResponse:
    """Send an approved invoice once more."""
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    if invoice.approved_at is None:
        raise invalid_request("the invoice is not approved yet: approve it first", code="not_approved")
    return ShownInvoiceResponse(invoice=sending_out.send(call.tx, invoice))


@GROUP.operation("POST", "/{invoiceId}/payments", takes=Payment, gives=ShownInvoiceResponse)
def pay(call: Call[Payment]) -> ShownInvoiceResponse:
    """Pay an invoice, or fail to."""
    given = call.given
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    if given.outcome is Outcome.PAID:
        if given.failure_reason is not None:
            raise invalid_request("a payment that is paid has no failureReason", "failureReason")
        paid = payments.pay(call.tx, invoice, given.amount, given.payment_method)
        return ShownInvoiceResponse(invoice=paid)
    failed = payments.fail(call.tx, invoice, given.amount, given.payment_method, given.failure_reason)
    return ShownInvoiceResponse(invoice=failed)
