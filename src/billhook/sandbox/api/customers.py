"""Customers, their consumption, custom fields. Source: spec, "Endpoints", Customers; Custom fields."""

from __future__ import annotations

from billhook.resources import (
    Customer,
    CustomerResponse,
    CustomerUpdate,
    CustomFieldPage,
    CustomFieldResponse,
    PageQuery,
    ProductConsumptionsResponse,
)
from billhook.sandbox.billing import anonymous_customers, customers, metered_items
from billhook.sandbox.billing.custom_fields import DEFINITIONS
from billhook.sandbox.billing.customers import customer_views
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.storage.paging import page_limit

__all__ = ["CONSUMPTIONS_GROUP", "CUSTOMERS_GROUP", "CUSTOM_FIELDS_GROUP"]

CUSTOMERS_GROUP = OperationGroup("customers", prefix="/customers")
CONSUMPTIONS_GROUP = OperationGroup(
    "customers", prefix="/customers/products-consumptions", name="consumptions"
)
CUSTOM_FIELDS_GROUP = OperationGroup("customers", prefix="/customFields", name="customFields")


@CUSTOMERS_GROUP.operation(
    "PUT", "/{customerId}", name="update", takes=CustomerUpdate, gives=CustomerResponse
)
def update_customer(call: Call[CustomerUpdate]) -> CustomerResponse:
    """Change the fields that are given; a null clears its field."""
    stored = customers.find(call.tx, call.path["customerId"])
    # A new alias may be the name of an anonymous customer, which is merged then.
    changed = anonymous_customers.update_customer(call.tx, stored, call.request)
    return CustomerResponse(customer=customer_views(call.tx, [changed])[0])


@CUSTOMERS_GROUP.operation("GET", "/integration/{integrationType}/{integrationId}", gives=CustomerResponse)
def get_by_integration(call: Call[None]) -> CustomerResponse:
    """Get the customer that is linked to an external entity."""
    found = customers.find_by_integration(call.tx, call.path["integrationType"], call.path["integrationId"])
    return CustomerResponse(customer=customer_views(call.tx, [found])[0])


@CONSUMPTIONS_GROUP.operation("GET", "/{customerId}", name="by_id", gives=ProductConsumptionsResponse)
def consumption_by_id(call: Call[None]) -> ProductConsumptionsResponse:
    """Get a customer's consumption of each product in the current billing cycle."""
    return _consumption(call, customers.find(call.tx, call.path["customerId"]))


@CONSUMPTIONS_GROUP.operation("GET", "/alias/{alias}", name="by_alias", gives=ProductConsumptionsResponse)
def consumption_by_alias(call: Call[None]) -> ProductConsumptionsResponse:
    """Get the consumption of the customer with this alias in the current billing cycle."""
    return _consumption(call, customers.find_by_alias(call.tx, call.path["alias"]))


def _consumption(call: Call[None], customer: Customer) -> ProductConsumptionsResponse:
    used = metered_items.customer_consumption(call.tx, customer.id)
    return ProductConsumptionsResponse(products_consumptions=used)


@CUSTOM_FIELDS_GROUP.operation("GET", "", name="list_all", takes=PageQuery, gives=CustomFieldPage)
def list_custom_fields(call: Call[PageQuery]) -> CustomFieldPage:
    """List the definitions, oldest first."""
    page = DEFINITIONS.page(call.tx, page_limit(call.request), call.request.cursor)
    return CustomFieldPage(custom_fields=page.items, **page.fields())


@CUSTOM_FIELDS_GROUP.operation("GET", "/{customFieldId}", name="get", gives=CustomFieldResponse)
def get_custom_field(call: Call[None]) -> CustomFieldResponse:
    """Get a definition."""
    return CustomFieldResponse(custom_field=DEFINITIONS.get(call.tx, call.path["customFieldId"]))
