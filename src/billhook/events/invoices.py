"""Events about invoices and their payment. Source: spec, "Events"; "States and transitions"."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, Field

from billhook.events.base import Event
from billhook.events.fields import Currency, CustomerId, InvoiceId, Moment, Number, RaisedAt, Text, recognised
from billhook.wire.statuses import BillingStatus

__all__ = [
    "BillingStatus",
    "InvoiceApproved",
    "InvoicePaymentStatusChanged",
    "InvoiceSendFailed",
    "PaymentFailed",
]


class InvoiceApproved(Event):
    """An invoice was approved and can go out.

    Source: spec, "Events".
    """

    date: RaisedAt
    invoice_id: InvoiceId


class InvoicePaymentStatusChanged(Event):
    """The payment of an invoice moved to another state.

    Source: spec, "Events"; for the states, "States and transitions".
    """

    invoice_id: InvoiceId
    billing_status: Annotated[
        Text,
        AfterValidator(recognised(BillingStatus)),
        Field(
            description="The new state: None, Paid, Rejected, PendingPayment, Overdue, or another.",
            examples=["Paid"],
        ),
    ]
    amount_due: Annotated[Number, Field(description="Amount still to pay.", examples=[Decimal("0.00")])]
    amount_paid: Annotated[Number, Field(description="Amount paid so far.", examples=[Decimal("1249.90")])]
    total: Annotated[Number, Field(description="Amount of the whole invoice.", examples=[Decimal("1249.90")])]
    due_date: Annotated[
        Moment | None, Field(description="When payment is due, if set.", examples=["2026-02-14T00:00:00Z"])
    ] = None
    paid_at: Annotated[
        Moment | None, Field(description="When it was paid, if it was.", examples=["2026-01-15T09:29:41Z"])
    ] = None
    invoice_pdf_url: Annotated[
        Text | None,
        Field(
            description="Where the PDF is, if there is one.",
            examples=["https://billing.example/inv_3007.pdf"],
        ),
    ] = None


class InvoiceSendFailed(Event):
    """An invoice could not be sent.

    Source: spec, "Events".
    """

    invoice_id: InvoiceId
    invoice_number: Annotated[
        Text | None,
        Field(description="Number printed on the invoice, if it has one.", examples=["2026-0117"]),
    ] = None
    date: RaisedAt


class PaymentFailed(Event):
    """A payment was tried and did not go through.

    Source: spec, "Events".
    """

    date: RaisedAt
    customer_id: CustomerId
    invoice_id: InvoiceId
    payment_provider: Annotated[Text, Field(description="Who tried to collect it.", examples=["Stripe"])]
    amount: Annotated[Number, Field(description="Amount that was tried.", examples=[Decimal("1249.90")])]
    currency: Currency
    failure_reason: Annotated[
        Text | None, Field(description="Why it failed, if known.", examples=["card_declined"])
    ] = None
