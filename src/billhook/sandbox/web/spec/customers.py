"""Changing customers, and finding them. Source: spec, "Endpoints", Customers."""

from __future__ import annotations

from billhook.resources import CustomerResponse, CustomerUpdate
from billhook.sandbox.billing import claiming, customers
from billhook.sandbox.billing.customer_accounts import shown
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("customers", prefix="/customers")


@GROUP.operation("PUT", "/{customerId}", takes=CustomerUpdate, gives=CustomerResponse)
def update(call: Call[CustomerUpdate]) -> CustomerResponse:
    """Change the fields that are given; a null clears its field."""
    stored = customers.find(call.tx, call.path["customerId"])
    changed = claiming.change(call.tx, stored, call.given)
    return CustomerResponse(customer=shown(call.tx, [changed])[0])


@GROUP.operation("GET", "/integration/{integrationType}/{integrationId}", gives=CustomerResponse)
def get_by_integration(call: Call[None]) -> CustomerResponse:
    """Get the customer that is linked to an entity of another provider."""
    found = customers.by_integration(call.tx, call.path["integrationType"], call.path["integrationId"])
    return CustomerResponse(customer=shown(call.tx, [found])[0])
