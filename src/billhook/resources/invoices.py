"""Invoices. Source: spec, "Resources and their fields", Invoice; "Endpoints", Invoices."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, Field

from billhook.resources.base import READ_ONLY, Resource, Stored
from billhook.resources.paging import CountedPage, PageQuery
from billhook.resources.payments import PaymentInfo
from billhook.wire.fields import Flag, ListOf, MaybeListOf, Moment, Number, Text, recognised
from billhook.wire.statuses import BillingStatus

__all__ = [
    "BillingCycle",
    "Invoice",
    "InvoicePage",
    "InvoiceQuery",
    "InvoiceResponse",
    "LineItem",
    "RevenueBreakdown",
]

_BillingStatus = Annotated[Text, AfterValidator(recognised(BillingStatus))]


class RevenueBreakdown(Resource):
    """What an amount is made of.

    Source: spec, "Resources and their fields", Invoice, revenueBreakdown.
    """

    total: Annotated[Number | None, Field(description="The whole.", examples=[Decimal("1249.90")])] = None
    subtotal: Annotated[Number | None, Field(description="Before tax.", examples=[Decimal("1041.58")])] = None
    overage: Annotated[
        Number | None, Field(description="For usage over the commitment.", examples=[Decimal("37.50")])
    ] = None
    discount: Annotated[Number | None, Field(description="Taken off.", examples=[Decimal("0.00")])] = None
    credits_used: Annotated[
        Number | None, Field(description="Paid by credits.", examples=[Decimal("0.00")])
    ] = None
    tax: Annotated[Number | None, Field(description="Tax.", examples=[Decimal("208.32")])] = None


class BillingCycle(Resource):
    """The time that is billed.

    Source: spec, "Resources and their fields", Invoice, billingCycle.
    """

    start_time: Annotated[
        Moment | None, Field(description="When it begins.", examples=["2026-01-01T00:00:00Z"])
    ] = None
    end_time: Annotated[
        Moment | None, Field(description="When it ends.", examples=["2026-02-01T00:00:00Z"])
    ] = None


class LineItem(Resource):
    """A line of an invoice.

    Source: spec, "Resources and their fields", Invoice, lineItems.
    """

    invoice_id: Annotated[Text | None, Field(description="Id of the invoice.", examples=["inv_3007"])] = None
    revenue_breakdown: Annotated[
        RevenueBreakdown | None, Field(description="What its amount is made of.")
    ] = None


class Invoice(Stored):
    """An invoice, which this interface only reads.

    Source: spec, "Resources and their fields", Invoice; for the states, "States and transitions".
    """

    customer_id: Annotated[
        Text | None, READ_ONLY, Field(description="Id of the customer.", examples=["cus_1042"])
    ] = None
    contract_id: Annotated[
        Text | None, READ_ONLY, Field(description="Id of the contract.", examples=["con_2001"])
    ] = None
    name: Annotated[
        Text | None, READ_ONLY, Field(description="Name of the invoice.", examples=["January 2026"])
    ] = None
    account_id: Annotated[Text | None, READ_ONLY, Field(description="Id of the account.")] = None
    revenue_breakdown: Annotated[
        RevenueBreakdown | None, READ_ONLY, Field(description="What its amount is made of.")
    ] = None
    billing_status: Annotated[
        _BillingStatus | None,
        READ_ONLY,
        Field(
            description="State of payment: None, Paid, Rejected, PendingPayment, Overdue, or another.",
            examples=["PendingPayment"],
        ),
    ] = None
    payment_info: Annotated[PaymentInfo | None, READ_ONLY, Field(description="How it was paid.")] = None
    due_date: Annotated[
        Moment | None, READ_ONLY, Field(description="When payment is due.", examples=["2026-02-14T00:00:00Z"])
    ] = None
    billing_cycle: Annotated[BillingCycle | None, READ_ONLY, Field(description="The time billed.")] = None
    line_items: Annotated[MaybeListOf[LineItem], READ_ONLY, Field(description="Its lines.")] = None
    amount: Annotated[
        Number | None, READ_ONLY, Field(description="Its amount.", examples=[Decimal("1249.90")])
    ] = None
    is_trial: Annotated[
        Flag | None, READ_ONLY, Field(description="Is its contract a trial?", examples=[False])
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
        Text | None, Field(description="Only invoices of this customer.", examples=["cus_1042"])
    ] = None
    billing_status: Annotated[
        _BillingStatus | None, Field(description="Only invoices in this state.", examples=["Overdue"])
    ] = None
    issued_after: Annotated[
        Moment | None,
        Field(
            description="Only invoices issued after this; whether at it, is not stated.",
            examples=["2026-01-01T00:00:00Z"],
        ),
    ] = None
    issued_before: Annotated[
        Moment | None,
        Field(
            description="Only invoices issued before this; whether at it, is not stated.",
            examples=["2026-02-01T00:00:00Z"],
        ),
    ] = None


class InvoicePage(CountedPage):
    """The response of GET /invoices.

    Source: spec, "Endpoints", GET /invoices.
    """

    invoices: Annotated[ListOf[Invoice], Field(description="The invoices of this page.")]
