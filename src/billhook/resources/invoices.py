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

    id: Annotated[StrictStr | None, Field(description="Id of the account.", examples=["dep_1"])] = None
    name: Annotated[StrictStr | None, Field(description="Name of the account.", examples=["Checking"])] = None
    integration: Annotated[
        StrictStr | None, Field(description="System that holds the account.", examples=["NetSuite"])
    ] = None


class PaymentInfo(Resource):
    """How an invoice was paid.

    Source: spec, "Resources and their fields", Invoice, paymentInfo.
    """

    transaction_id: Annotated[
        StrictStr | None, Field(description="Id of the transaction.", examples=["txn_90"])
    ] = None
    date: Annotated[
        StrictStr | None,
        Field(
            description="Time of payment; the format is not stated.",
            examples=["2026-01-15T09:29:41Z"],
        ),
    ] = None
    payment_method: Annotated[
        StrictStr | None, Field(description="Payment method, such as Card.", examples=["Card"])
    ] = None
    payment_method_id: Annotated[
        StrictStr | None,
        Field(description="Id of the payment method, such as a card or bank account.", examples=["pm_6"]),
    ] = None
    amount: Annotated[
        ExactDecimal | None, Field(description="Amount paid, in `currency`.", examples=[Decimal("1249.90")])
    ] = None
    currency: Annotated[
        StrictStr | None, Field(description="Currency code of the amount.", examples=["USD"])
    ] = None
    status: Annotated[StrictStr | None, Field(description="Status of the payment.")] = None
    note: Annotated[StrictStr | None, Field(description="Note on the payment.")] = None
    customer_id: Annotated[
        StrictStr | None, Field(description="Id of the paying customer.", examples=["cus_1042"])
    ] = None
    deposit_to: Annotated[DepositTo | None, Field(description="Account that received the payment.")] = None


class RevenueBreakdown(Resource):
    """What an amount is made of.

    Source: spec, "Resources and their fields", Invoice, revenueBreakdown.
    """

    total: Annotated[
        ExactDecimal | None, Field(description="Total amount.", examples=[Decimal("1249.90")])
    ] = None
    subtotal: Annotated[
        ExactDecimal | None, Field(description="Amount before tax.", examples=[Decimal("1041.58")])
    ] = None
    overage: Annotated[
        ExactDecimal | None,
        Field(description="Amount for usage beyond the commitment.", examples=[Decimal("37.50")]),
    ] = None
    discount: Annotated[
        ExactDecimal | None, Field(description="Amount of discounts.", examples=[Decimal("0.00")])
    ] = None
    credits_used: Annotated[
        ExactDecimal | None, Field(description="Amount paid by credits.", examples=[Decimal("0.00")])
    ] = None
    tax: Annotated[ExactDecimal | None, Field(description="Amount of tax.", examples=[Decimal("208.32")])] = (
        None
    )


class BillingCycle(Resource):
    """The time that is billed.

    Source: spec, "Resources and their fields", Invoice, billingCycle.
    """

    start_time: Annotated[
        UtcDatetime | None,
        Field(description="Start of the billing cycle.", examples=["2026-01-01T00:00:00Z"]),
    ] = None
    end_time: Annotated[
        UtcDatetime | None, Field(description="End of the billing cycle.", examples=["2026-02-01T00:00:00Z"])
    ] = None


class LineItem(Resource):
    """A line of an invoice.

    Source: spec, "Resources and their fields", Invoice, lineItems.
    """

    invoice_id: Annotated[
        StrictStr | None, Field(description="Id of the invoice.", examples=["inv_3007"])
    ] = None
    revenue_breakdown: Annotated[RevenueBreakdown | None, Field(description="Breakdown of the amount.")] = (
        None
    )


class Invoice(StoredResource):
    """An invoice, which this interface only reads.

    Source: spec, "Resources and their fields", Invoice; for the states, "States and transitions".
    """

    customer_id: Annotated[
        StrictStr | None, READ_ONLY, Field(description="Id of the customer.", examples=["cus_1042"])
    ] = None
    contract_id: Annotated[
        StrictStr | None, READ_ONLY, Field(description="Id of the contract.", examples=["con_2001"])
    ] = None
    name: Annotated[
        StrictStr | None, READ_ONLY, Field(description="Name of the invoice.", examples=["January 2026"])
    ] = None
    account_id: Annotated[StrictStr | None, READ_ONLY, Field(description="Id of the account.")] = None
    revenue_breakdown: Annotated[
        RevenueBreakdown | None, READ_ONLY, Field(description="Breakdown of the amount.")
    ] = None
    billing_status: Annotated[
        BillingStatusWord | None,
        READ_ONLY,
        Field(
            description="Payment state: None, Paid, Rejected, PendingPayment, Overdue, or another.",
            examples=["PendingPayment"],
        ),
    ] = None
    payment_info: Annotated[PaymentInfo | None, READ_ONLY, Field(description="Payment of the invoice.")] = (
        None
    )
    due_date: Annotated[
        UtcDatetime | None,
        READ_ONLY,
        Field(description="Due date of the payment.", examples=["2026-02-14T00:00:00Z"]),
    ] = None
    billing_cycle: Annotated[
        BillingCycle | None, READ_ONLY, Field(description="Billing cycle of the invoice.")
    ] = None
    line_items: Annotated[
        MaybeListOf[LineItem], READ_ONLY, Field(description="Line items of the invoice.")
    ] = None
    amount: Annotated[
        ExactDecimal | None,
        READ_ONLY,
        Field(description="Total amount of the invoice.", examples=[Decimal("1249.90")]),
    ] = None
    is_trial: Annotated[
        StrictBool | None,
        READ_ONLY,
        Field(description="Whether the invoice belongs to a trial contract.", examples=[False]),
    ] = None


class InvoiceResponse(Resource):
    """The response of GET /invoices/{invoiceId}.

    Source: spec, "Endpoints", Invoices.
    """

    invoice: Annotated[Invoice, Field(description="The invoice.")]


class InvoiceQuery(PageQuery):
    """The query of GET /invoices.

    Source: spec, "Endpoints", GET /invoices.
    """

    customer_id: Annotated[
        StrictStr | None, Field(description="Id of the customer to filter by.", examples=["cus_1042"])
    ] = None
    billing_status: Annotated[
        BillingStatusWord | None, Field(description="Payment state to filter by.", examples=["Overdue"])
    ] = None
    issued_after: Annotated[
        UtcDatetime | None,
        Field(
            description="Only invoices issued after this time; whether inclusive is not stated.",
            examples=["2026-01-01T00:00:00Z"],
        ),
    ] = None
    issued_before: Annotated[
        UtcDatetime | None,
        Field(
            description="Only invoices issued before this time; whether inclusive is not stated.",
            examples=["2026-02-01T00:00:00Z"],
        ),
    ] = None


class InvoicePage(CountedPage):
    """The response of GET /invoices.

    Source: spec, "Endpoints", GET /invoices.
    """

    invoices: Annotated[ListOf[Invoice], Field(description="Invoices of this page.")]
