"""Invoices and their payment.

Source: spec, "Resources and their fields", Invoice; "Endpoints", Invoices.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictBool, StrictStr

from billhook.fields.types import BillingStatusWord, ExactDecimal, ListOf, MaybeListOf, UtcDatetime
from billhook.resources.base import READ_ONLY, CountedPage, PageQuery, Resource, StoredResource


class DepositTo(Resource):
    """The account a payment went to.

    Source: spec, "Resources and their fields", Invoice, paymentInfo.
    """

    id: StrictStr | None = Field(default=None, description="Id of the account.", examples=["dep_1"])
    name: StrictStr | None = Field(default=None, description="Name of the account.", examples=["Checking"])
    integration: StrictStr | None = Field(
        default=None, description="System that holds the account.", examples=["NetSuite"]
    )


class PaymentInfo(Resource):
    """How an invoice was paid.

    Source: spec, "Resources and their fields", Invoice, paymentInfo.
    """

    transaction_id: StrictStr | None = Field(
        default=None, description="Id of the transaction.", examples=["txn_90"]
    )
    date: StrictStr | None = Field(
        default=None,
        description="Time of payment; the format is not stated.",
        examples=["2026-01-15T09:29:41Z"],
    )
    payment_method: StrictStr | None = Field(
        default=None, description="Payment method, such as Card.", examples=["Card"]
    )
    payment_method_id: StrictStr | None = Field(
        default=None,
        description="Id of the payment method, such as a card or bank account.",
        examples=["pm_6"],
    )
    amount: ExactDecimal | None = Field(
        default=None, description="Amount paid, in `currency`.", examples=[Decimal("1249.90")]
    )
    currency: StrictStr | None = Field(
        default=None, description="Currency code of the amount.", examples=["USD"]
    )
    status: StrictStr | None = Field(default=None, description="Status of the payment.")
    note: StrictStr | None = Field(default=None, description="Note on the payment.")
    customer_id: StrictStr | None = Field(
        default=None, description="Id of the paying customer.", examples=["cus_1042"]
    )
    deposit_to: DepositTo | None = Field(default=None, description="Account that received the payment.")


class RevenueBreakdown(Resource):
    """What an amount is made of.

    Source: spec, "Resources and their fields", Invoice, revenueBreakdown.
    """

    total: ExactDecimal | None = Field(
        default=None, description="Total amount.", examples=[Decimal("1249.90")]
    )
    subtotal: ExactDecimal | None = Field(
        default=None, description="Amount before tax.", examples=[Decimal("1041.58")]
    )
    overage: ExactDecimal | None = Field(
        default=None, description="Amount for usage beyond the commitment.", examples=[Decimal("37.50")]
    )
    discount: ExactDecimal | None = Field(
        default=None, description="Amount of discounts.", examples=[Decimal("0.00")]
    )
    credits_used: ExactDecimal | None = Field(
        default=None, description="Amount paid by credits.", examples=[Decimal("0.00")]
    )
    tax: ExactDecimal | None = Field(default=None, description="Amount of tax.", examples=[Decimal("208.32")])


class BillingCycle(Resource):
    """The time that is billed.

    Source: spec, "Resources and their fields", Invoice, billingCycle.
    """

    start_time: UtcDatetime | None = Field(
        default=None, description="Start of the billing cycle.", examples=["2026-01-01T00:00:00Z"]
    )
    end_time: UtcDatetime | None = Field(
        default=None, description="End of the billing cycle.", examples=["2026-02-01T00:00:00Z"]
    )


class LineItem(Resource):
    """A line of an invoice.

    Source: spec, "Resources and their fields", Invoice, lineItems.
    """

    invoice_id: StrictStr | None = Field(
        default=None, description="Id of the invoice.", examples=["inv_3007"]
    )
    revenue_breakdown: RevenueBreakdown | None = Field(default=None, description="Breakdown of the amount.")


class Invoice(StoredResource):
    """An invoice, which this interface only reads.

    Source: spec, "Resources and their fields", Invoice; for the states, "States and transitions".
    """

    customer_id: Annotated[StrictStr | None, READ_ONLY] = Field(
        default=None, description="Id of the customer.", examples=["cus_1042"]
    )
    contract_id: Annotated[StrictStr | None, READ_ONLY] = Field(
        default=None, description="Id of the contract.", examples=["con_2001"]
    )
    name: Annotated[StrictStr | None, READ_ONLY] = Field(
        default=None, description="Name of the invoice.", examples=["January 2026"]
    )
    account_id: Annotated[StrictStr | None, READ_ONLY] = Field(default=None, description="Id of the account.")
    revenue_breakdown: Annotated[RevenueBreakdown | None, READ_ONLY] = Field(
        default=None, description="Breakdown of the amount."
    )
    billing_status: Annotated[BillingStatusWord | None, READ_ONLY] = Field(
        default=None,
        description="Payment state: None, Paid, Rejected, PendingPayment, Overdue, or another.",
        examples=["PendingPayment"],
    )
    payment_info: Annotated[PaymentInfo | None, READ_ONLY] = Field(
        default=None, description="Payment of the invoice."
    )
    due_date: Annotated[UtcDatetime | None, READ_ONLY] = Field(
        default=None, description="Due date of the payment.", examples=["2026-02-14T00:00:00Z"]
    )
    billing_cycle: Annotated[BillingCycle | None, READ_ONLY] = Field(
        default=None, description="Billing cycle of the invoice."
    )
    line_items: Annotated[MaybeListOf[LineItem], READ_ONLY] = Field(
        default=None, description="Line items of the invoice."
    )
    amount: Annotated[ExactDecimal | None, READ_ONLY] = Field(
        default=None, description="Total amount of the invoice.", examples=[Decimal("1249.90")]
    )
    is_trial: Annotated[StrictBool | None, READ_ONLY] = Field(
        default=None, description="Whether the invoice belongs to a trial contract.", examples=[False]
    )


class InvoiceResponse(Resource):
    """The response of GET /invoices/{invoiceId}.

    Source: spec, "Endpoints", Invoices.
    """

    invoice: Invoice = Field(description="The invoice.")


class InvoiceQuery(PageQuery):
    """The query of GET /invoices.

    Source: spec, "Endpoints", GET /invoices.
    """

    customer_id: StrictStr | None = Field(
        default=None, description="Id of the customer to filter by.", examples=["cus_1042"]
    )
    billing_status: BillingStatusWord | None = Field(
        default=None, description="Payment state to filter by.", examples=["Overdue"]
    )
    issued_after: UtcDatetime | None = Field(
        default=None,
        description="Only invoices issued after this time; whether inclusive is not stated.",
        examples=["2026-01-01T00:00:00Z"],
    )
    issued_before: UtcDatetime | None = Field(
        default=None,
        description="Only invoices issued before this time; whether inclusive is not stated.",
        examples=["2026-02-01T00:00:00Z"],
    )


class InvoicePage(CountedPage):
    """The response of GET /invoices.

    Source: spec, "Endpoints", GET /invoices.
    """

    invoices: ListOf[Invoice] = Field(description="Invoices of this page.")
