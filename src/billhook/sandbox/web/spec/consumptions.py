"""How much of their products customers have used. Source: spec, "Endpoints", Customers."""

from __future__ import annotations

from billhook.resources import Customer, ProductConsumptionsResponse
from billhook.sandbox.billing import consumption, customers
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("customers", prefix="/customers/products-consumptions", name="consumptions")


@GROUP.operation("GET", "/{customerId}", gives=ProductConsumptionsResponse)
def by_id(call: Call[None]) -> ProductConsumptionsResponse:
    """Get how much a customer has used, of each product, in the present billing cycle."""
    return _of(call, customers.find(call.tx, call.path["customerId"]))


@GROUP.operation("GET", "/alias/{alias}", gives=ProductConsumptionsResponse)
def by_alias(call: Call[None]) -> ProductConsumptionsResponse:
    """Get the same by any name that the customer's usage comes under."""
    return _of(call, customers.by_alias(call.tx, call.path["alias"]))


def _of(call: Call[None], customer: Customer) -> ProductConsumptionsResponse:
    used = consumption.of_customer(call.tx, customer.id)
    return ProductConsumptionsResponse(products_consumptions=used)
