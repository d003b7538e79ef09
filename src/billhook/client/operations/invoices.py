"""Invoices. Source: spec, "Endpoints", Invoices, which shows reading only."""

from __future__ import annotations

from datetime import datetime

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup
from billhook.client.paging import Listing
from billhook.resources import Invoice, InvoicePage, InvoiceQuery, InvoiceResponse

__all__ = ["GET", "LIST", "Invoices"]

# Both are repeatable: GET changes nothing.
LIST = ApiOperation("GET", "/invoices", repeatable=True)
GET = ApiOperation("GET", "/invoices/{invoiceId}", repeatable=True)


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
            LIST,
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
        return self._session.call(GET, InvoiceResponse, invoice_id).invoice
