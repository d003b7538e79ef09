"""The links of the OpenAPI document: where the answer of an operation leads, from a customer to its credits.

With them a tool can walk the life of a bill: a customer, its contract, their invoices and payments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Link:
    """Leads to the operation `to`; a parameter, or value of the body, such as `/id` is that of the answer."""

    name: str
    to: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    def described(self, operation_id: str) -> dict[str, Any]:
        """Return the link as the document has it."""
        found: dict[str, Any] = {"operationId": operation_id}
        if self.parameters:
            found["parameters"] = {name: _expression(value) for name, value in self.parameters.items()}
        if self.body:
            found["requestBody"] = {name: _expression(value) for name, value in self.body.items()}
        return found


def _expression(value: Any) -> Any:
    is_pointer = isinstance(value, str) and value.startswith("/")
    return f"$response.body#{value}" if is_pointer else value


# Begun in the past, so that a cycle is over and there is an invoice at once.
_CONTRACT = {
    "name": "Deal",
    "startDate": "2025-12-01T00:00:00Z",
    "products": [{"displayName": "Fee", "pricing": {"type": "Flat", "price": 100}}],
}
_GRANT = {
    "name": "Starter pack",
    "creditProductId": "starter",
    "balanceKind": "Monetary",
    "grantAmount": 100,
    "price": 90,
    "schedule": "Once",
}


def _of_customer(place: str) -> list[Link]:
    return [
        Link("customer", "GET /_sandbox/customers/{customerId}", {"customerId": place}),
        Link("contracts", "GET /contracts", {"customerId": place}),
        Link("invoices", "GET /invoices", {"customerId": place}),
        Link("credits", "GET /credits", {"customerId": place}),
    ]


def _of_contract(place: str) -> list[Link]:
    return [
        Link("contract", "GET /contracts/{contractId}", {"contractId": place}),
        Link("delete", "DELETE /contracts/{contractId}", {"contractId": place}),
    ]


def _of_invoice(place: str) -> list[Link]:
    return [
        Link("invoice", "GET /invoices/{invoiceId}", {"invoiceId": place}),
        Link("approve", "POST /_sandbox/invoices/{invoiceId}/approve", {"invoiceId": place}),
        Link("send", "POST /_sandbox/invoices/{invoiceId}/send", {"invoiceId": place}),
        Link(
            "pay", "POST /_sandbox/invoices/{invoiceId}/payments", {"invoiceId": place}, {"outcome": "paid"}
        ),
    ]


_ID = "/customer/id"
_CUSTOMER = [
    *_of_customer(_ID),
    Link("update", "PUT /customers/{customerId}", {"customerId": _ID}),
    Link("consumption", "GET /customers/products-consumptions/{customerId}", {"customerId": _ID}),
    Link("sell", "POST /contracts", body={"customerId": _ID, **_CONTRACT}),
    Link("topUp", "POST /credits/top-up", body={"customerId": _ID, "creditGrant": _GRANT}),
    Link("grant", "POST /_sandbox/credits/grant", body={"customerId": _ID, "creditAmount": 100}),
    Link("deduct", "POST /credits/deduct", body={"customerId": _ID, "creditAmount": 1}),
]
_ONE_CONTRACT = [*_of_contract("/contract/id"), *_of_customer("/contract/customerId")]
_ONE_INVOICE = [*_of_invoice("/invoice/id"), *_of_customer("/invoice/customerId")]

LINKS: Mapping[str, Sequence[Link]] = {
    "POST /_sandbox/customers": _CUSTOMER,
    "GET /_sandbox/customers/{customerId}": _CUSTOMER,
    "PUT /customers/{customerId}": _CUSTOMER,
    "GET /_sandbox/customers": _of_customer("/customers/0/id"),
    "POST /contracts": _ONE_CONTRACT,
    "GET /contracts/{contractId}": _ONE_CONTRACT,
    "GET /contracts": [*_of_contract("/contracts/0/id"), *_of_customer("/contracts/0/customerId")],
    "GET /invoices": [*_of_invoice("/invoices/0/id"), *_of_customer("/invoices/0/customerId")],
    "GET /invoices/{invoiceId}": _ONE_INVOICE,
    "POST /_sandbox/invoices/{invoiceId}/approve": _ONE_INVOICE,
    "POST /_sandbox/invoices/{invoiceId}/payments": _ONE_INVOICE,
    "POST /credits/top-up": [*_of_invoice("/invoiceId"), *_of_customer("/customerId")],
}
"""The links in the answers of operations, by method and path."""
