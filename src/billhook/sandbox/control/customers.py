"""Creating and listing customers, and defining custom fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from billhook.resources import (
    Customer,
    CustomerResponse,
    CustomerUpdate,
    CustomFieldResponse,
    PageQuery,
    Resource,
)
from billhook.resources.base import CountedPage
from billhook.sandbox.billing import anonymous_customers, custom_fields, customers
from billhook.sandbox.billing.customers import customer_views
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.options import check_key
from billhook.sandbox.storage.repository import page_limit, request_document
from billhook.sandbox.storage.tables.billing import custom_field, customer
from billhook.sandbox.storage.transaction import Transaction
from billhook.wire.fields import ListOf, MaybeListOf

__all__ = ["CUSTOMERS_GROUP", "CUSTOM_FIELDS_GROUP"]

CUSTOMERS_GROUP = OperationGroup("_sandbox/customers", prefix="/_sandbox/customers")
CUSTOM_FIELDS_GROUP = OperationGroup("_sandbox/customFields", prefix="/_sandbox/customFields")


class CustomerQuery(PageQuery, register=False):
    """A filter of customers."""

    anonymous: Annotated[
        StrictStr | None,
        Field(description="`true`: only anonymous customers, created for usage; `false`: only the others."),
    ] = None


class CustomerPage(CountedPage, register=False):
    """A page of customers."""

    customers: Annotated[ListOf[Customer], Field(description="The customers of this page.")]


@CUSTOMERS_GROUP.operation("POST", "", name="create", takes=CustomerUpdate, gives=CustomerResponse)
def create_customer(call: Call[CustomerUpdate]) -> CustomerResponse:
    """Create a customer, as the service's dashboard does.

    It may claim the name of an anonymous customer, whose usage then becomes its own.
    """
    made = anonymous_customers.create_customer(call.tx, call.request)
    return CustomerResponse(customer=customer_views(call.tx, [made])[0])


@CUSTOMERS_GROUP.operation("GET", "", name="list_all", takes=CustomerQuery, gives=CustomerPage)
def list_customers(call: Call[CustomerQuery]) -> CustomerPage:
    """List the customers, oldest first."""
    wanted = call.request.anonymous
    # Parameters of a URL are texts, so the model cannot require a boolean.
    if wanted not in (None, "true", "false"):
        raise invalid_request("anonymous is true or false", "anonymous")
    where = () if wanted is None else (customer.c.anonymous.is_(wanted == "true"),)
    page = customers.CUSTOMERS.page(call.tx, page_limit(call.request), call.request.cursor, *where)
    return CustomerPage(customers=customer_views(call.tx, page.items), **page.fields())


@CUSTOMERS_GROUP.operation("GET", "/{customerId}", name="get", gives=CustomerResponse)
def get_customer(call: Call[None]) -> CustomerResponse:
    """Get a customer."""
    found = customers.find(call.tx, call.path["customerId"])
    return CustomerResponse(customer=customer_views(call.tx, [found])[0])


class NewCustomField(Resource, register=False):
    """A definition to create. Names are unique for each entity."""

    custom_field_name: Annotated[StrictStr, Field(description="Name of the field.", examples=["region"])]
    entity: Annotated[StrictStr, Field(description="Entity that has the field: Customer or Contract.")] = (
        "Customer"
    )
    value_type: Annotated[
        StrictStr, Field(description="Type of its values: String, Number, Boolean or Date.")
    ] = "String"
    integration_source: Annotated[
        StrictStr | None, Field(description="System that the values come from.")
    ] = None
    integration_entity_type: Annotated[
        StrictStr | None, Field(description="Type of the entity in that system.")
    ] = None
    field_path: Annotated[StrictStr | None, Field(description="Path of the value in that entity.")] = None
    allowed_values: Annotated[MaybeListOf[StrictStr], Field(description="Allowed values, as text.")] = None
    default_value: Annotated[StrictStr | None, Field(description="Default value, as text.")] = None


@CUSTOM_FIELDS_GROUP.operation("POST", "", name="create", takes=NewCustomField, gives=CustomFieldResponse)
def create_custom_field(call: Call[NewCustomField]) -> CustomFieldResponse:
    """Define a custom field."""
    request = call.request
    _check_custom_field(call.tx, request)
    data = request_document(request)
    # Defaults are stored, too: the read model of a definition has none.
    data = {**data, "entity": request.entity, "valueType": request.value_type}
    made = custom_fields.DEFINITIONS.add(call.tx, data, entity=request.entity, name=request.custom_field_name)
    return CustomFieldResponse(custom_field=made)


def _check_custom_field(tx: Transaction, request: NewCustomField) -> None:
    check_key(request.custom_field_name, "customFieldName")
    _check_choice(request.entity, custom_fields.ENTITIES, "entity")
    _check_choice(request.value_type, custom_fields.VALUE_TYPES, "valueType")
    same = custom_field.c.entity == request.entity, custom_field.c.name == request.custom_field_name
    if custom_fields.DEFINITIONS.first(tx, *same):
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


def _check_choice(request: str, choices: tuple[str, ...], param: str) -> None:
    if request not in choices:
        raise invalid_request(f"{param} is one of {', '.join(choices)}", param)


def _check_text(value_type: str, text: str, param: str) -> None:
    if not custom_fields.is_value_text(value_type, text):
        raise invalid_request(f"{param} is not the text of a {value_type}", param)
