"""Customers, and the definitions of their custom fields.

Source: spec, "Endpoints", Customers, which shows no creating, listing or deleting; Custom fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billhook.client.operation import ApiOperation, Listing
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.resources import (
    Customer,
    CustomerResponse,
    CustomerUpdate,
    CustomField,
    CustomFieldPage,
    CustomFieldResponse,
    PageQuery,
    ProductConsumption,
    ProductConsumptionsResponse,
)

__all__ = [
    "BY_INTEGRATION",
    "CONSUMPTIONS",
    "CONSUMPTIONS_BY_ALIAS",
    "GET_FIELD",
    "LIST_FIELDS",
    "UPDATE_CUSTOMER",
    "CustomFields",
    "Customers",
]

# Repeatable: a PUT that arrives twice sets the same values again.
UPDATE_CUSTOMER = ApiOperation("PUT", "/customers/{customerId}", repeatable=True)
BY_INTEGRATION = ApiOperation(
    "GET", "/customers/integration/{integrationType}/{integrationId}", repeatable=True
)
CONSUMPTIONS = ApiOperation("GET", "/customers/products-consumptions/{customerId}", repeatable=True)
CONSUMPTIONS_BY_ALIAS = ApiOperation("GET", "/customers/products-consumptions/alias/{alias}", repeatable=True)
LIST_FIELDS = ApiOperation("GET", "/customFields", repeatable=True)
GET_FIELD = ApiOperation("GET", "/customFields/{customFieldId}", repeatable=True)


class Customers(ApiGroup):
    """Customers, and their consumption of products."""

    def update(self, customer_id: str, customer: CustomerUpdate | Mapping[str, Any]) -> Customer:
        """Change the fields of a customer that `customer` contains; the others stay.

        Calls PUT /customers/{customerId}. Raises ResourceNotFound.
        """
        body = encode_body(CustomerUpdate, customer)
        return self._session.call(UPDATE_CUSTOMER, CustomerResponse, customer_id, body=body).customer

    def get_by_integration(self, integration_type: str, integration_id: str) -> Customer:
        """Get the customer that is linked to an entity of another provider.

        Calls GET /customers/integration/{integrationType}/{integrationId}. Raises ResourceNotFound.
        """
        return self._session.call(BY_INTEGRATION, CustomerResponse, integration_type, integration_id).customer

    def products_consumptions(self, customer_id: str) -> list[ProductConsumption]:
        """Get a customer's consumption of each product in the current billing cycle.

        Calls GET /customers/products-consumptions/{customerId}. Raises ResourceNotFound.
        """
        return self._session.call(
            CONSUMPTIONS, ProductConsumptionsResponse, customer_id
        ).products_consumptions

    def products_consumptions_by_alias(self, alias: str) -> list[ProductConsumption]:
        """Get the consumption of the customer with this alias, as `products_consumptions` does.

        Calls GET /customers/products-consumptions/alias/{alias}. Raises ResourceNotFound.
        """
        return self._session.call(
            CONSUMPTIONS_BY_ALIAS, ProductConsumptionsResponse, alias
        ).products_consumptions


class CustomFields(ApiGroup):
    """The definitions of custom fields. Customers and contracts contain the values."""

    def list(self, *, limit: int | None = None) -> Listing[CustomField]:
        """List the definitions, in pages of `limit`. Calls GET /customFields."""
        return self._listing(
            LIST_FIELDS, CustomFieldPage, lambda page: page.custom_fields, PageQuery, limit=limit
        )

    def get(self, custom_field_id: str) -> CustomField:
        """Get a definition. Calls GET /customFields/{customFieldId}. Raises ResourceNotFound."""
        return self._session.call(GET_FIELD, CustomFieldResponse, custom_field_id).custom_field
