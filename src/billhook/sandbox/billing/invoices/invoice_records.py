"""The invoice as the sandbox stores and shows it, with fields that the specification does not list.

Source: spec, "Resources and their fields", Invoice.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Annotated

from pydantic import Field, StrictStr

from billhook.resources import Invoice, LineItem, Resource
from billhook.resources.base import READ_ONLY, WRITE_ONLY
from billhook.resources.paging import CountedPage
from billhook.sandbox.billing.decimals import EXACT, ZERO
from billhook.sandbox.fields import sandbox_field
from billhook.wire.fields import ExactDecimal, Integer, ListOf, MaybeListOf, UtcDatetime

__all__ = ["InvoicePageView", "InvoiceRecord", "InvoiceResponseView", "InvoiceView", "LineItemView"]


class LineItemView(LineItem, register=False):
    """A line item with its product."""

    product_id: Annotated[StrictStr | None, sandbox_field("Id of the product.", examples=["cat_31"])] = None
    product_name: Annotated[
        StrictStr | None, sandbox_field("Name of the product.", examples=["API calls"])
    ] = None
    units: Annotated[ExactDecimal | None, sandbox_field("Units used.", examples=[Decimal(10000)])] = None


class InvoiceView(Invoice, register=False):
    """An invoice as the sandbox shows it."""

    line_items: Annotated[MaybeListOf[LineItemView], READ_ONLY, Field(description="Line items.")] = None  # type: ignore[assignment]
    invoice_number: Annotated[
        StrictStr,
        READ_ONLY,
        sandbox_field("Invoice number: the year, and a number within the year.", examples=["2026-0117"]),
    ]
    currency: Annotated[StrictStr, READ_ONLY, sandbox_field("Currency code.", examples=["USD"])]
    issued_at: Annotated[
        UtcDatetime, READ_ONLY, sandbox_field("Time of issue.", examples=["2026-02-01T00:00:00Z"])
    ]
    approved_at: Annotated[
        UtcDatetime | None,
        READ_ONLY,
        sandbox_field("Time of approval; null before.", examples=["2026-02-02T00:00:00Z"]),
    ] = None


class InvoiceRecord(InvoiceView, register=False):
    """An invoice as it is stored, with fields that the API does not show."""

    payment_days: Annotated[
        Integer | None, WRITE_ONLY, Field(description="Days until payment is due, from the contract.")
    ] = None
    amount_paid: Annotated[ExactDecimal, WRITE_ONLY, Field(description="Amount paid so far.")] = ZERO

    @property
    def amount_due(self) -> Decimal:
        """The amount that is still to be paid."""
        with localcontext(EXACT):
            return (self.amount or ZERO) - self.amount_paid


class InvoiceResponseView(Resource, register=False):
    """One invoice."""

    invoice: Annotated[InvoiceView, Field(description="The invoice.")]


class InvoicePageView(CountedPage, register=False):
    """A page of invoices."""

    invoices: Annotated[ListOf[InvoiceView], Field(description="The invoices of this page.")]
