"""What an invoice has besides the fields of the specification. All of it is the sandbox's own.

Source: spec, "Resources and their fields", Invoice.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Annotated

from pydantic import Field

from billhook.resources import Invoice, LineItem, Resource
from billhook.resources.base import READ_ONLY, WRITE_ONLY
from billhook.resources.paging import CountedPage
from billhook.sandbox.billing.exact import EXACT, ZERO
from billhook.sandbox.own_fields import own
from billhook.wire.fields import Integer, ListOf, MaybeListOf, Moment, Number, Text

__all__ = ["KeptInvoice", "ShownInvoice", "ShownInvoicePage", "ShownInvoiceResponse", "ShownLine"]


class ShownLine(LineItem, register=False):
    """A line item, and what it is for."""

    product_id: Annotated[Text | None, own("Id of the product.", examples=["cat_31"])] = None
    product_name: Annotated[Text | None, own("Name of it.", examples=["API calls"])] = None
    units: Annotated[Number | None, own("Units used.", examples=[Decimal(10000)])] = None


class ShownInvoice(Invoice, register=False):
    """An invoice as the sandbox shows it."""

    line_items: Annotated[MaybeListOf[ShownLine], READ_ONLY, Field(description="Its lines.")] = None  # type: ignore[assignment]
    invoice_number: Annotated[Text, READ_ONLY, own("Its number in its year.", examples=["2026-0117"])]
    currency: Annotated[Text, READ_ONLY, own("Currency code.", examples=["USD"])]
    issued_at: Annotated[Moment, READ_ONLY, own("When it was issued.", examples=["2026-02-01T00:00:00Z"])]
    approved_at: Annotated[
        Moment | None,
        READ_ONLY,
        own("When it was approved.", examples=["2026-02-02T00:00:00Z"]),
    ] = None


class KeptInvoice(ShownInvoice, register=False):
    """The same with what is not shown."""

    payment_days: Annotated[
        Integer | None, WRITE_ONLY, Field(description="Days to pay in, if its contract says it.")
    ] = None
    amount_paid: Annotated[Number, WRITE_ONLY, Field(description="What was paid so far.")] = ZERO

    @property
    def amount_due(self) -> Decimal:
        """What is still to be paid."""
        with localcontext(EXACT):
            return (self.amount or ZERO) - self.amount_paid


class ShownInvoiceResponse(Resource, register=False):
    """One invoice."""

    invoice: Annotated[ShownInvoice, Field(description="The invoice.")]


class ShownInvoicePage(CountedPage, register=False):
    """A page of invoices."""

    invoices: Annotated[ListOf[ShownInvoice], Field(description="The invoices of this page.")]
