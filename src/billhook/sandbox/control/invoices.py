"""Approving, sending and paying invoices; exchange rates and month-end reports."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StrictStr

from billhook.resources import Resource
from billhook.sandbox.billing import currencies, month_end
from billhook.sandbox.billing.invoices import approval, invoices, payments
from billhook.sandbox.billing.invoices.invoice_records import InvoiceResponseView
from billhook.sandbox.billing.month_end import ReportResponse
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Call, OperationGroup
from billhook.wire.fields import ExactDecimal

__all__ = ["EXCHANGE_RATES_GROUP", "INVOICES_GROUP", "REPORTS_GROUP"]

INVOICES_GROUP = OperationGroup("_sandbox/invoices", prefix="/_sandbox/invoices")
EXCHANGE_RATES_GROUP = OperationGroup("_sandbox/exchangeRates", prefix="/_sandbox/exchangeRates")
REPORTS_GROUP = OperationGroup("_sandbox/reports", prefix="/_sandbox/reports")


class Outcome(StrEnum):
    """The outcome of a payment."""

    PAID = "paid"
    FAILED = "failed"


class Payment(Resource, register=False):
    """A payment to make, with its outcome."""

    outcome: Annotated[
        Outcome, Field(description="Outcome of the payment: paid or failed.", examples=["paid"])
    ]
    amount: Annotated[
        ExactDecimal | None,
        Field(description="Amount in the invoice's currency; all that is due by default.", examples=[]),
    ] = None
    failure_reason: Annotated[
        StrictStr | None, Field(description="Reason of the failure.", examples=["card_declined"])
    ] = None
    payment_method: Annotated[StrictStr | None, Field(description="Payment method; Card by default.")] = None


@INVOICES_GROUP.operation("POST", "/{invoiceId}/approve", name="approve", gives=InvoiceResponseView)
def approve_invoice(call: Call[None]) -> InvoiceResponseView:
    """Approve an invoice now, and send it."""
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    return InvoiceResponseView(invoice=approval.approve(call.tx, invoice))


@INVOICES_GROUP.operation("POST", "/{invoiceId}/send", name="send", gives=InvoiceResponseView)
def send_invoice(call: Call[None]) -> InvoiceResponseView:
    """Send an approved invoice once more."""
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    # Approval sends the invoice the first time: before it the due date is not known.
    if invoice.approved_at is None:
        raise invalid_request("the invoice is not approved yet: approve it first", code="not_approved")
    return InvoiceResponseView(invoice=approval.send_invoice(call.tx, invoice))


@INVOICES_GROUP.operation(
    "POST", "/{invoiceId}/payments", name="pay", takes=Payment, gives=InvoiceResponseView
)
def pay_invoice(call: Call[Payment]) -> InvoiceResponseView:
    """Pay an invoice, or record a failed payment."""
    request = call.request
    invoice = invoices.INVOICES.get(call.tx, call.path["invoiceId"])
    if request.outcome is Outcome.PAID:
        # Probably the outcome is wrong: ignoring the reason would hide the mistake.
        if request.failure_reason is not None:
            raise invalid_request("a payment that is paid has no failureReason", "failureReason")
        paid = payments.pay(call.tx, invoice, request.amount, request.payment_method)
        return InvoiceResponseView(invoice=paid)
    failed = payments.record_failure(
        call.tx, invoice, request.amount, request.payment_method, request.failure_reason
    )
    return InvoiceResponseView(invoice=failed)


class ExchangeRates(Resource, register=False):
    """Exchange rates."""

    rates: Annotated[
        dict[str, ExactDecimal],
        Field(description="US dollars for one unit, by currency code.", examples=[{"EUR": Decimal("1.10")}]),
    ]


@EXCHANGE_RATES_GROUP.operation("GET", "", name="show", gives=ExchangeRates)
def show_exchange_rates(call: Call[None]) -> ExchangeRates:
    """Get the exchange rates."""
    return ExchangeRates(rates=currencies.rates(call.tx))


@EXCHANGE_RATES_GROUP.operation("PUT", "", name="change", takes=ExchangeRates, gives=ExchangeRates)
def change_exchange_rates(call: Call[ExchangeRates]) -> ExchangeRates:
    """Change some exchange rates, for invoices that are issued from now on."""
    return ExchangeRates(rates=currencies.set_rates(call.tx, call.request.rates))


@REPORTS_GROUP.operation("GET", "/{reportId}", name="get", gives=ReportResponse)
def get_report(call: Call[None]) -> ReportResponse:
    """Get a month-end report."""
    return ReportResponse(report=month_end.find_report(call.tx, call.path["reportId"]))
