"""Invoices and their payment.

Source: spec, "Resources and their fields", Invoice; "Endpoints", Invoices.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictBool, StrictStr

from billhook.fields.model import optional
from billhook.fields.types import BillingStatusWord, ExactDecimal, ListOf, MaybeListOf, UtcDatetime
from billhook.resources.base import (
    READ_ONLY,
    CountedPage,
    PageQuery,
    ReadNumber,
    ReadText,
    Resource,
    StoredResource,
)


class DepositTo(Resource):
    """The account a payment went to.

    Source: spec, "Resources and their fields", Invoice, paymentInfo.
    """

    id: StrictStr | None = optional("Id of the account.", "dep_1")
    name: StrictStr | None = optional("Name of the account.", "Checking")
    integration: StrictStr | None = optional("System that holds the account.", "NetSuite")


class PaymentInfo(Resource):
    """How an invoice was paid.

    Source: spec, "Resources and their fields", Invoice, paymentInfo.
    """

    transaction_id: StrictStr | None = optional("Id of the transaction.", "txn_90")
    date: StrictStr | None = optional("Time of payment; the format is not stated.", "2026-01-15T09:29:41Z")
    payment_method: StrictStr | None = optional("Payment method, such as Card.", "Card")
    payment_method_id: StrictStr | None = optional(
        "Id of the payment method, such as a card or bank account.", "pm_6"
    )
    amount: ExactDecimal | None = optional("Amount paid, in `currency`.", Decimal("1249.90"))
    currency: StrictStr | None = optional("Currency code of the amount.", "USD")
    status: StrictStr | None = optional("Status of the payment.")
    note: StrictStr | None = optional("Note on the payment.")
    customer_id: StrictStr | None = optional("Id of the paying customer.", "cus_1042")
    deposit_to: DepositTo | None = optional("Account that received the payment.")


class RevenueBreakdown(Resource):
    """What an amount is made of.

    Source: spec, "Resources and their fields", Invoice, revenueBreakdown.
    """

    total: ExactDecimal | None = optional("Total amount.", Decimal("1249.90"))
    subtotal: ExactDecimal | None = optional("Amount before tax.", Decimal("1041.58"))
    overage: ExactDecimal | None = optional("Amount for usage beyond the commitment.", Decimal("37.50"))
    discount: ExactDecimal | None = optional("Amount of discounts.", Decimal("0.00"))
    credits_used: ExactDecimal | None = optional("Amount paid by credits.", Decimal("0.00"))
    tax: ExactDecimal | None = optional("Amount of tax.", Decimal("208.32"))


class BillingCycle(Resource):
    """The time that is billed.

    Source: spec, "Resources and their fields", Invoice, billingCycle.
    """

    start_time: UtcDatetime | None = optional("Start of the billing cycle.", "2026-01-01T00:00:00Z")
    end_time: UtcDatetime | None = optional("End of the billing cycle.", "2026-02-01T00:00:00Z")


class LineItem(Resource):
    """A line of an invoice.

    Source: spec, "Resources and their fields", Invoice, lineItems.
    """

    invoice_id: StrictStr | None = optional("Id of the invoice.", "inv_3007")
    revenue_breakdown: RevenueBreakdown | None = optional("Breakdown of the amount.")


class Invoice(StoredResource):
    """An invoice, which this interface only reads.

    Source: spec, "Resources and their fields", Invoice; for the states, "States and transitions".
    """

    customer_id: ReadText = optional("Id of the customer.", "cus_1042")
    contract_id: ReadText = optional("Id of the contract.", "con_2001")
    name: ReadText = optional("Name of the invoice.", "January 2026")
    account_id: ReadText = optional("Id of the account.")
    revenue_breakdown: Annotated[RevenueBreakdown | None, READ_ONLY] = optional("Breakdown of the amount.")
    billing_status: Annotated[BillingStatusWord | None, READ_ONLY] = optional(
        "Payment state: None, Paid, Rejected, PendingPayment, Overdue, or another.", "PendingPayment"
    )
    payment_info: Annotated[PaymentInfo | None, READ_ONLY] = optional("Payment of the invoice.")
    due_date: Annotated[UtcDatetime | None, READ_ONLY] = optional(
        "Due date of the payment.", "2026-02-14T00:00:00Z"
    )
    billing_cycle: Annotated[BillingCycle | None, READ_ONLY] = optional("Billing cycle of the invoice.")
    line_items: Annotated[MaybeListOf[LineItem], READ_ONLY] = optional("Line items of the invoice.")
    amount: ReadNumber = optional("Total amount of the invoice.", Decimal("1249.90"))
    is_trial: Annotated[StrictBool | None, READ_ONLY] = optional(
        "Whether the invoice belongs to a trial contract.", False
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

    customer_id: StrictStr | None = optional("Id of the customer to filter by.", "cus_1042")
    billing_status: BillingStatusWord | None = optional("Payment state to filter by.", "Overdue")
    issued_after: UtcDatetime | None = optional(
        "Only invoices issued after this time; whether inclusive is not stated.", "2026-01-01T00:00:00Z"
    )
    issued_before: UtcDatetime | None = optional(
        "Only invoices issued before this time; whether inclusive is not stated.", "2026-02-01T00:00:00Z"
    )


class InvoicePage(CountedPage):
    """The response of GET /invoices.

    Source: spec, "Endpoints", GET /invoices.
    """

    invoices: ListOf[Invoice] = Field(description="Invoices of this page.")
