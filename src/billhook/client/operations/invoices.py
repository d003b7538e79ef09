"""Invoices and credits.

Source: spec, "Endpoints", Invoices, which shows reading only; Credits, which shows neither direct grants
nor credit products.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from billhook.client.operation import ApiOperation, Listing
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.resources import (
    CreditDeduction,
    CreditGrant,
    CreditLedgerEntry,
    CreditLedgerPage,
    CreditLedgerQuery,
    CreditTopUp,
    CreditTopUpResponse,
    Invoice,
    InvoicePage,
    InvoiceQuery,
    InvoiceResponse,
)

__all__ = ["DEDUCT", "GET_INVOICE", "LIST_CREDITS", "LIST_INVOICES", "TOP_UP", "Credits", "Invoices"]

# Both are repeatable: GET changes nothing.
LIST_INVOICES = ApiOperation("GET", "/invoices", repeatable=True)
GET_INVOICE = ApiOperation("GET", "/invoices/{invoiceId}", repeatable=True)
LIST_CREDITS = ApiOperation("GET", "/credits", repeatable=True)
# Not repeatable: a request that is repeated would deduct, or bill, twice.
DEDUCT = ApiOperation("POST", "/credits/deduct", repeatable=False)
TOP_UP = ApiOperation("POST", "/credits/top-up", repeatable=False)


class Invoices(ApiGroup):
    """Invoices, to read."""

    def list(
        self,
        *,
        customer_id: str | None = None,
        billing_status: str | None = None,
        issued_after: datetime | str | None = None,
        issued_before: datetime | str | None = None,
        limit: int | None = None,
    ) -> Listing[Invoice]:
        """List the invoices that match all filters, in pages of `limit`. Calls GET /invoices."""
        return self._listing(
            LIST_INVOICES,
            InvoicePage,
            lambda page: page.invoices,
            InvoiceQuery,
            customer_id=customer_id,
            billing_status=billing_status,
            issued_after=issued_after,
            issued_before=issued_before,
            limit=limit,
        )

    def get(self, invoice_id: str) -> Invoice:
        """Get an invoice. Calls GET /invoices/{invoiceId}. Raises ResourceNotFound."""
        return self._session.call(GET_INVOICE, InvoiceResponse, invoice_id).invoice


class Credits(ApiGroup):
    """The credits of customers, and their ledger."""

    def list(self, customer_id: str, *, limit: int | None = None) -> Listing[CreditLedgerEntry]:
        """List the customer's credit ledger, in pages of `limit`. Calls GET /credits."""
        return self._listing(
            LIST_CREDITS,
            CreditLedgerPage,
            lambda page: page.entries,
            CreditLedgerQuery,
            customer_id=customer_id,
            limit=limit,
        )

    def deduct(self, customer_id: str, credit_amount: Decimal | int | float) -> dict[str, Any]:
        """Subtract an amount from the customer's credits. Calls POST /credits/deduct.

        Returns the response as plain values, {} if it is empty: the specification does not show it.
        """
        body = encode_body(CreditDeduction, {"customer_id": customer_id, "credit_amount": credit_amount})
        return self._session.call_untyped(DEDUCT, body)

    def top_up(self, customer_id: str, credit_grant: CreditGrant | Mapping[str, Any]) -> CreditTopUpResponse:
        """Invoice a customer for credits, which are granted when the invoice is approved.

        Calls POST /credits/top-up.
        """
        body = encode_body(CreditTopUp, {"customer_id": customer_id, "credit_grant": credit_grant})
        return self._session.call(TOP_UP, CreditTopUpResponse, body=body)
