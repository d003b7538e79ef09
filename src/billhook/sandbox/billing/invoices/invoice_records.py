"""The invoice as the sandbox stores and shows it, with fields and a page that are the sandbox's own.

A page is for people: it needs no credentials, but only its link opens it. Source: spec, "Resources and their
fields", Invoice; "Events", invoicePdfUrl of InvoicePaymentStatusChanged.
"""

from __future__ import annotations

import hashlib
import hmac
from decimal import Decimal, localcontext
from typing import Annotated

from pydantic import Field, StrictBool, StrictStr

from billhook.fields.types import ExactDecimal, Integer, ListOf, MaybeListOf, UtcDatetime
from billhook.resources import BillingCycle, CreditGrant, Invoice, LineItem, Resource
from billhook.resources.base import READ_ONLY, WRITE_ONLY, CountedPage
from billhook.sandbox import tokens
from billhook.sandbox.billing.money import EXACT, ZERO
from billhook.sandbox.operations import sandbox_field
from billhook.sandbox.storage.transaction import Transaction


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


class LineItemRecord(LineItemView, register=False):
    """A line item as it is stored: with what it bills, so that later usage is charged as a difference."""

    line_key: Annotated[StrictStr | None, WRITE_ONLY] = None
    """The contract's line whose usage it bills, if any."""
    cycle: Annotated[BillingCycle | None, WRITE_ONLY] = None
    """The billing cycle of that usage."""
    exceeded: Annotated[StrictBool, WRITE_ONLY] = False
    """Whether it bills usage beyond a commitment."""
    unpaid: Annotated[dict[str, ListOf[ExactDecimal]], WRITE_ONLY] = Field(default_factory=dict)
    """Units and money of the usage that credits do not pay for, by product key."""


class InvoiceRecord(InvoiceView, register=False):
    """An invoice as it is stored, with fields that the API does not show."""

    line_items: Annotated[MaybeListOf[LineItemRecord], READ_ONLY, Field(description="Line items.")] = None  # type: ignore[assignment]
    payment_days: Annotated[Integer | None, WRITE_ONLY] = None
    """Days until payment is due, from the contract."""
    credit_grant: Annotated[CreditGrant | None, WRITE_ONLY] = None
    """The credits of a top-up, granted at the approval."""
    amount_paid: Annotated[ExactDecimal, WRITE_ONLY] = ZERO
    """The amount paid so far."""

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


PAGES_PATH = "/_sandbox/pages/invoices"
"""The path under which the pages are."""

_PROOF_CHARACTERS = 40  # 160 bits, in hexadecimal


def page_url(tx: Transaction, invoice_id: str) -> str | None:
    """Return the URL of an invoice's page; None if the sandbox's base URL is not configured."""
    base_url = tx.options.base_url
    if base_url is None:
        return None
    return f"{base_url.rstrip('/')}{page_path(tx, invoice_id)}"


def page_path(tx: Transaction, invoice_id: str) -> str:
    """Return the address of an invoice's page in this sandbox."""
    return f"{PAGES_PATH}/{invoice_id}/{_proof(tx, invoice_id)}"


def is_valid_proof(tx: Transaction, invoice_id: str, proof: str) -> bool:
    """Return whether `proof` is that of a link from `page_url`. Compares in constant time."""
    return hmac.compare_digest(_proof(tx, invoice_id).encode(), proof.encode("utf-8", "surrogateescape"))


def _proof(tx: Transaction, invoice_id: str) -> str:
    # The prefix keeps this use of the key apart from that for access tokens.
    text = f"invoice page {invoice_id}".encode()
    return hmac.new(tokens.jwt_key(tx), text, hashlib.sha256).hexdigest()[:_PROOF_CHARACTERS]
