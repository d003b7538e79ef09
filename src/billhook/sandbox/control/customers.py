"""Customers, their custom fields, contracts and plans; the meters of what they sell; submitted cloud usage.

Source: spec, "Endpoints", Meters.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from billhook.fields.types import ListOf, MaybeListOf
from billhook.resources import (
    BillingData,
    ContractResponse,
    CountedPage,
    Customer,
    CustomerResponse,
    CustomerUpdate,
    CustomFieldResponse,
    PageQuery,
)
from billhook.sandbox.billing import (
    anonymous_customers,
    contract_lifecycle,
    contracts,
    custom_fields,
    customers,
    meters,
)
from billhook.sandbox.billing.contracts import FullPlan, Products
from billhook.sandbox.billing.customers import customer_views
from billhook.sandbox.billing.ingestion import SUBMISSIONS, CloudUsageRecord
from billhook.sandbox.billing.meters import Meter, NewMeter
from billhook.sandbox.billing.new_contracts import check_plan_billing, check_products, plan_period
from billhook.sandbox.errors import check_choice, check_key, invalid_request
from billhook.sandbox.operations import Call, OperationGroup, SandboxResource
from billhook.sandbox.storage.repository import request_document
from billhook.sandbox.storage.tables import custom_field, customer

CUSTOMERS_GROUP = OperationGroup(
    "_sandbox/customers",
    prefix="/_sandbox/customers",
    about="Creates and lists customers, which the specification leaves open.",
)
CUSTOM_FIELDS_GROUP = OperationGroup(
    "_sandbox/customFields", prefix="/_sandbox/customFields", about="Defines custom fields."
)
CONTRACTS_GROUP = OperationGroup(
    "_sandbox/contracts", prefix="/_sandbox/contracts", about="Shows a contract, and activates one."
)
PLANS_GROUP = OperationGroup("_sandbox/plans", prefix="/_sandbox/plans", about="Creates and lists plans.")
METERS_GROUP = OperationGroup("_sandbox/meters", prefix="/_sandbox/meters", about="Creates and lists meters.")
CLOUD_USAGE_GROUP = OperationGroup(
    "_sandbox/cloudUsage", prefix="/_sandbox/cloudUsageSubmissions", about="Lists submissions of cloud usage."
)


class CustomerQuery(PageQuery, SandboxResource, register=False):
    """A filter of customers."""

    anonymous: StrictStr | None = None
    """`true`: only anonymous customers, created for usage; `false`: only the others."""


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
def list_customers(call: Call[CustomerQuery]) -> CustomerPage:
    """List the customers, oldest first."""
    wanted = call.request.anonymous
    # Parameters of a URL are texts, so the model cannot require a boolean.
    check_choice(wanted, ("true", "false"), "anonymous")
    where = () if wanted is None else (customer.c.anonymous.is_(wanted == "true"),)
    page = customers.CUSTOMERS.page(call.tx, call.request, *where)
    return CustomerPage(customers=customer_views(call.tx, page.items), **page.fields())


@CUSTOMERS_GROUP.operation("GET", "/{customerId}", name="get")
def get_customer(call: Call[None]) -> CustomerResponse:
    """Get a customer."""
    found = customers.find(call.tx, call.path["customerId"])
    return CustomerResponse(customer=customer_views(call.tx, [found])[0])


class NewCustomField(SandboxResource, register=False):
    """A definition to create. Names are unique for each entity."""

    custom_field_name: Annotated[StrictStr, Field(examples=["region"])]
    """Name of the field."""
    entity: StrictStr = "Customer"
    """Entity that has the field: Customer or Contract."""
    value_type: StrictStr = "String"
    """Type of its values: String, Number, Boolean or Date."""
    integration_source: StrictStr | None = None
    """System that the values come from."""
    integration_entity_type: StrictStr | None = None
    """Type of the entity in that system."""
    field_path: StrictStr | None = None
    """Path of the value in that entity."""
    allowed_values: MaybeListOf[StrictStr] = None
    """Allowed values, as text."""
    default_value: StrictStr | None = None
    """Default value, as text."""


@CUSTOM_FIELDS_GROUP.operation("POST", "", name="create")
def create_custom_field(call: Call[NewCustomField]) -> CustomFieldResponse:
    """Define a custom field."""
    request = call.request
    check_key(request.custom_field_name, "customFieldName")
    check_choice(request.entity, custom_fields.ENTITIES, "entity")
    check_choice(request.value_type, custom_fields.VALUE_TYPES, "valueType")
    of = custom_field.c
    same = of.entity == request.entity, of.custom_field_name == request.custom_field_name
    if custom_fields.DEFINITIONS.first(call.tx, *same):
        raise invalid_request(
            "this entity has a custom field of this name", "customFieldName", code="already_exists"
        )
    # Values are compared as stored texts: an allowed value of another spelling would match nothing.
    allowed = request.allowed_values or []
    for n, text in enumerate(allowed):
        _check_text(request.value_type, text, f"allowedValues.{n}")
    if request.default_value is not None:
        _check_text(request.value_type, request.default_value, "defaultValue")
        if allowed and request.default_value not in allowed:
            raise invalid_request("defaultValue is not one of allowedValues", "defaultValue")
    data = request_document(request)
    # Defaults are stored, too: the read model of a definition has none.
    data = {**data, "entity": request.entity, "valueType": request.value_type}
    return CustomFieldResponse(custom_field=custom_fields.DEFINITIONS.add(call.tx, data))


def _check_text(value_type: str, text: str, param: str) -> None:
    if not custom_fields.is_value_text(value_type, text):
        raise invalid_request(f"{param} is not the text of a {value_type}", param)


@CONTRACTS_GROUP.operation("GET", "/{contractId}", name="get")
def get_contract(call: Call[None]) -> ContractResponse:
    """Get the contract with this id or externalId: as GET /contracts/{contractId} does."""
    found = contracts.find(call.tx, call.path["contractId"])
    return ContractResponse(contract=contracts.views(call.tx, [found])[0])


@CONTRACTS_GROUP.operation("POST", "/{contractId}/activate", name="activate")
def activate_contract(call: Call[None]) -> ContractResponse:
    """Activate a contract that is InReview."""
    active = contract_lifecycle.activate(call.tx, contracts.find(call.tx, call.path["contractId"]))
    return ContractResponse(contract=contracts.views(call.tx, [active])[0])


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


class FullPlanPage(CountedPage, SandboxResource, register=False):
    """A page of plans."""

    plans: ListOf[FullPlan]
    """The plans of this page."""


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


@PLANS_GROUP.operation("GET", "", name="list_all")
def list_plans(call: Call[PageQuery]) -> FullPlanPage:
    """List the plans with their products, oldest first."""
    page = contracts.PLANS.page(call.tx, call.request)
    return FullPlanPage(plans=page.items, **page.fields())


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


@METERS_GROUP.operation("GET", "/{meterId}", name="get")
def get_meter(call: Call[None]) -> MeterResponse:
    """Get a meter."""
    return MeterResponse(meter=meters.METERS.get(call.tx, call.path["meterId"]))


# The specification has no operation that reads what was submitted; tests need one.
class SubmittedUsagePage(CountedPage, SandboxResource, register=False):
    """A page of results."""

    results: ListOf[CloudUsageRecord]
    """The results of this page."""


@CLOUD_USAGE_GROUP.operation("GET", "", name="list_all")
def list_submissions(call: Call[PageQuery]) -> SubmittedUsagePage:
    """List the results that were submitted, oldest first."""
    page = SUBMISSIONS.page(call.tx, call.request)
    return SubmittedUsagePage(results=page.items, **page.fields())
