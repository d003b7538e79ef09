"""Events about credit pools, invoices and payment. Source: spec, "Events"; "States and transitions"."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, StrictStr

from billhook.events.base import Currency, Event, PctUsage, RaisedAt, Threshold
from billhook.fields.model import optional
from billhook.fields.types import (
    BillingStatus,
    CreditKind,
    CustomerId,
    ExactDecimal,
    InvoiceId,
    OpenEnum,
    UtcDatetime,
)
from billhook.fields.unstated import NUMBER_IN_TEXT


class _CreditPoolEvent(Event, register=False):
    """The fields that the three events have in common."""

    identify: ClassVar[tuple[str, ...]] = ("customer_id", "credit_pool_id")

    date: RaisedAt
    customer_id: CustomerId
    credit_pool_id: StrictStr = Field(description="Id of the credit pool.", examples=["pool_12"])
    credit_type_id: StrictStr = Field(description="Id of the credit type.", examples=["crt_3"])
    credit_kind: Annotated[StrictStr, AfterValidator(OpenEnum(CreditKind))] = Field(
        description="Type of credit: Monetary, Unit, or another.", examples=["Monetary"]
    )


class CreditPoolDepleted(_CreditPoolEvent):
    """The last credit of a pool is used.

    Source: spec, "Events".
    """

    balance: ExactDecimal = Field(description="Remaining credits: none.", examples=[Decimal(0)])


class CreditPoolThresholdCrossed(_CreditPoolEvent):
    """Usage of a credit pool passed a threshold set for it.

    Source: spec, "Events".
    """

    threshold: Annotated[Threshold, NUMBER_IN_TEXT]
    pct_usage: Annotated[PctUsage, NUMBER_IN_TEXT]
    balance: Annotated[ExactDecimal, NUMBER_IN_TEXT] = Field(
        description="Remaining credits.", examples=[Decimal("187.50")]
    )


class CreditPoolIncreased(_CreditPoolEvent):
    """Credits were put into a pool.

    Source: spec, "Events".
    """

    identify = ("customer_id", "credit_pool_id", "granted_amount")

    granted_amount: Annotated[ExactDecimal, NUMBER_IN_TEXT] = Field(
        description="Credits added.", examples=[Decimal("500.00")]
    )
    previous_balance: Annotated[ExactDecimal, NUMBER_IN_TEXT] = Field(
        description="Balance before, in credits.", examples=[Decimal("187.50")]
    )
    balance: Annotated[ExactDecimal, NUMBER_IN_TEXT] = Field(
        description="Balance after, in credits.", examples=[Decimal("687.50")]
    )


class InvoiceApproved(Event):
    """An invoice was approved and can go out.

    Source: spec, "Events".
    """

    identify = ("invoice_id",)

    date: RaisedAt
    invoice_id: InvoiceId


class InvoicePaymentStatusChanged(Event):
    """The payment of an invoice moved to another state.

    Source: spec, "Events"; for the states, "States and transitions".
    """

    identify = ("invoice_id", "total")

    invoice_id: InvoiceId
    billing_status: Annotated[StrictStr, AfterValidator(OpenEnum(BillingStatus))] = Field(
        description="New payment state: None, Paid, Rejected, PendingPayment, Overdue, or another.",
        examples=["Paid"],
    )
    amount_due: ExactDecimal = Field(description="Unpaid amount.", examples=[Decimal("0.00")])
    amount_paid: ExactDecimal = Field(description="Amount paid so far.", examples=[Decimal("1249.90")])
    total: ExactDecimal = Field(description="Total amount of the invoice.", examples=[Decimal("1249.90")])
    due_date: UtcDatetime | None = optional("Due date of the payment, if set.", "2026-02-14T00:00:00Z")
    paid_at: UtcDatetime | None = optional("Time of payment, if paid.", "2026-01-15T09:29:41Z")
    invoice_pdf_url: StrictStr | None = optional(
        "URL of the PDF, if there is one.", "https://billing.example/inv_3007.pdf"
    )


class InvoiceSendFailed(Event):
    """An invoice could not be sent.

    Source: spec, "Events".
    """

    identify = ("invoice_id", "invoice_number")

    invoice_id: InvoiceId
    invoice_number: StrictStr | None = optional("Invoice number, if assigned.", "2026-0117")
    date: RaisedAt


class PaymentFailed(Event):
    """A payment was tried and did not go through.

    Source: spec, "Events".
    """

    identify = ("customer_id", "invoice_id", "amount")

    date: RaisedAt
    customer_id: CustomerId
    invoice_id: InvoiceId
    payment_provider: StrictStr = Field(description="Name of the payment provider.", examples=["Stripe"])
    amount: ExactDecimal = Field(description="Amount of the failed payment.", examples=[Decimal("1249.90")])
    currency: Currency
    failure_reason: StrictStr | None = optional("Reason for the failure, if known.", "card_declined")
