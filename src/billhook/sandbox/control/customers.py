"""Customers, contracts and plans; the meters of what they sell.

Source: spec, "Endpoints", Meters.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from billhook.fields.types import ListOf
from billhook.resources import (
    BillingData,
    ContractResponse,
    CountedPage,
    Customer,
    CustomerResponse,
    CustomerUpdate,
    PageQuery,
)
from billhook.sandbox.billing import anonymous_customers, contract_lifecycle
from billhook.sandbox.billing.contracts import contracts, customers
from billhook.sandbox.billing.contracts.contracts import FullPlan, Products
from billhook.sandbox.billing.contracts.customers import customer_views
from billhook.sandbox.billing.new_contracts import check_plan_billing, check_products, plan_period
from billhook.sandbox.billing.usage import meters
from billhook.sandbox.billing.usage.meters import Meter, NewMeter
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Call, OperationGroup, SandboxResource
from billhook.sandbox.storage.repository import request_document

CUSTOMERS_GROUP = OperationGroup(
    "_sandbox/customers",
    prefix="/_sandbox/customers",
    about="Creates and lists customers, which the specification leaves open.",
)
CONTRACTS_GROUP = OperationGroup(
    "_sandbox/contracts", prefix="/_sandbox/contracts", about="Activates a contract."
)
PLANS_GROUP = OperationGroup("_sandbox/plans", prefix="/_sandbox/plans", about="Creates plans.")
METERS_GROUP = OperationGroup("_sandbox/meters", prefix="/_sandbox/meters", about="Creates and lists meters.")


class CustomerPage(CountedPage, SandboxResource, register=False):
    """A page of customers."""

    customers: ListOf[Customer]
    """The customers of this page."""


@CUSTOMERS_GROUP.operation("POST", "", name="create")
def create_customer(call: Call[CustomerUpdate]) -> CustomerResponse:
    """Create a customer, as the service's dashboard does.

    It may claim the name of an anonymous customer, whose usage then becomes its own.
    """
    made = anonymous_customers.save_customer(call.tx, None, call.request)
    return CustomerResponse(customer=customer_views(call.tx, [made])[0])


@CUSTOMERS_GROUP.operation("GET", "", name="list_all")
def list_customers(call: Call[PageQuery]) -> CustomerPage:
    """List the customers, oldest first."""
    page = customers.CUSTOMERS.page(call.tx, call.request)
    return CustomerPage(customers=customer_views(call.tx, page.items), **page.fields())


@CUSTOMERS_GROUP.operation("GET", "/{customerId}", name="get")
def get_customer(call: Call[None]) -> CustomerResponse:
    """Get a customer."""
    found = customers.find(call.tx, call.path["customerId"])
    return CustomerResponse(customer=customer_views(call.tx, [found])[0])


@CONTRACTS_GROUP.operation("POST", "/{contractId}/activate", name="activate")
def activate_contract(call: Call[None]) -> ContractResponse:
    """Activate a contract that is InReview."""
    active = contract_lifecycle.activate(call.tx, contracts.find(call.tx, call.path["contractId"]))
    return ContractResponse(contract=active)


class NewPlan(SandboxResource, register=False):
    """A plan to create."""

    name: Annotated[StrictStr, Field(examples=["Growth"])]
    """Name of the plan."""
    external_id: Annotated[StrictStr | None, Field(examples=["plan-growth"])] = None
    """Id of the plan in your own system."""
    status: StrictStr | None = None
    """Status of the plan; Active by default."""
    billing_data: BillingData | None = None
    """Billing of the plan; billingInterval is Monthly by default."""
    products: Products = None


class FullPlanResponse(SandboxResource, register=False):
    """A plan."""

    plan: FullPlan
    """The plan."""


@PLANS_GROUP.operation("POST", "", name="create")
def create_plan(call: Call[NewPlan]) -> FullPlanResponse:
    """Create a plan."""
    request = call.request
    if not request.name.strip():
        raise invalid_request("name is empty: give one", "name")
    contracts.PLANS.check_external_id(call.tx, request.external_id)
    if request.billing_data is not None:
        check_plan_billing(request.billing_data)
    # As for a contract: products that cannot be billed would fail each contract of this plan.
    sold = [(f"products.{n}", product) for n, product in enumerate(request.products or [])]
    check_products(call.tx, "a plan", sold, plan_period(request.billing_data))
    data = request_document(request)
    # Stored with its default, so that clients see the interval of the plan's contracts.
    billing: dict[str, object] = data.get("billingData") or {}
    data["billingData"] = {**billing, "billingInterval": billing.get("billingInterval") or "Monthly"}
    data["status"] = request.status or "Active"
    data["products"] = data.get("products") or []
    return FullPlanResponse(plan=contracts.PLANS.add(call.tx, data))


class MeterResponse(SandboxResource, register=False):
    """One meter."""

    meter: Meter
    """The meter."""


class MeterPage(CountedPage, SandboxResource, register=False):
    """One page of the meters."""

    meters: ListOf[Meter]
    """The meters of this page."""


@METERS_GROUP.operation("POST", "", name="create")
def create_meter(call: Call[NewMeter]) -> MeterResponse:
    """Create a meter. It counts the events that arrive from now on."""
    return MeterResponse(meter=meters.create(call.tx, call.request))


@METERS_GROUP.operation("GET", "", name="list_all")
def list_meters(call: Call[PageQuery]) -> MeterPage:
    """List the meters, oldest first."""
    page = meters.METERS.page(call.tx, call.request)
    return MeterPage(meters=page.items, **page.fields())
