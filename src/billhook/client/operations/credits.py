"""Credits. Source: spec, "Endpoints", Credits: granting directly, and credit products, are not shown."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.client.paging import Listing
from billhook.resources import (
    CreditDeduction,
    CreditGrant,
    CreditLedgerEntry,
    CreditLedgerPage,
    CreditLedgerQuery,
    CreditTopUp,
    CreditTopUpResponse,
)

__all__ = ["DEDUCT", "LIST", "TOP_UP", "Credits"]

LIST = ApiOperation("GET", "/credits", repeatable=True)
DEDUCT = ApiOperation("POST", "/credits/deduct", repeatable=False)
TOP_UP = ApiOperation("POST", "/credits/top-up", repeatable=False)


class Credits(ApiGroup):
    """The credit ledger."""

    def list(self, customer_id: str, *, limit: int | None = None) -> Listing[CreditLedgerEntry]:
        """GET /credits, the customer's ledger, all pages of `limit` each."""
        return self._listing(
            LIST,
            CreditLedgerPage,
            lambda page: page.entries,
            CreditLedgerQuery,
            customer_id=customer_id,
            limit=limit,
        )

    def deduct(self, customer_id: str, credit_amount: Decimal | int | float) -> dict[str, Any]:
        """POST /credits/deduct: subtract an amount from the customer's account.

        The specification does not show the answer: it comes as plain values, {} if there is none.
        """
        body = encode_body(CreditDeduction, {"customer_id": customer_id, "credit_amount": credit_amount})
        return self._session.call_untyped(DEDUCT, body)

    def top_up(self, customer_id: str, credit_grant: CreditGrant | Mapping[str, Any]) -> CreditTopUpResponse:
        """POST /credits/top-up: an invoice for a grant; the credits are granted when it is approved."""
        body = encode_body(CreditTopUp, {"customer_id": customer_id, "credit_grant": credit_grant})
        return self._session.call(TOP_UP, CreditTopUpResponse, body=body)
