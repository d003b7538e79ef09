"""Customers, their custom fields and their product consumption.

Source: spec, "Resources and their fields", Customer, Product consumption; "Endpoints", Customers.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictStr

from billhook.fields.types import (
    ExactDecimal,
    ExceededAmount,
    JsonValue,
    ListOf,
    MaybeListOf,
    ProductConsumptionSnapshot,
    open_enum,
)
from billhook.resources.base import READ_ONLY, WRITE_ONLY, CountedPage, Resource, StoredResource
from billhook.resources.integrations import CustomerCloudSettings, CustomerIntegration


class _Origin(Resource, register=False):
    """Where a custom field's values come from."""

    integration_source: Annotated[
        StrictStr | None, Field(description="System from which values are taken.", examples=["Salesforce"])
    ] = None
    integration_entity_type: Annotated[
        StrictStr | None, Field(description="Entity type in that system.", examples=["Account"])
    ] = None
    field_path: Annotated[
        StrictStr | None, Field(description="Path of the value in that entity.", examples=["Region__c"])
    ] = None
    custom_field_name: Annotated[
        StrictStr | None, Field(description="Name of the custom field.", examples=["region"])
    ] = None
    value_type: Annotated[StrictStr | None, Field(description="Type of the value.", examples=["String"])] = (
        None
    )


class CustomFieldInput(_Origin):
    """A value to be set.

    Source: spec, "Resources and their fields", Customer, customFields.
    """

    value: Annotated[JsonValue, Field(description="Value of the field.", examples=["EMEA"])] = None


class CustomFieldValue(Resource):
    """A value that is set.

    Source: spec, "Resources and their fields", Customer, customFieldValues.
    """

    custom_field_definition_id: Annotated[
        StrictStr | None, Field(description="Id of the custom field's definition.", examples=["cfd_4"])
    ] = None
    value: Annotated[StrictStr | None, Field(description="Value of the field.", examples=["EMEA"])] = None
    field_name: Annotated[StrictStr | None, Field(description="Name of the field.", examples=["region"])] = (
        None
    )


class CustomField(StoredResource, _Origin):
    """The definition of a custom field.

    Source: spec, "Resources and their fields", Custom-field definition.
    """

    entity: Annotated[
        StrictStr | None, Field(description="Type of object that has the field.", examples=["Customer"])
    ] = None
    allowed_values: Annotated[
        MaybeListOf[StrictStr], Field(description="Allowed values.", examples=[["EMEA", "APAC"]])
    ] = None
    default_value: Annotated[StrictStr | None, Field(description="Default value.", examples=["EMEA"])] = None


class CustomFieldResponse(Resource):
    """The response of GET /customFields/{customFieldId}.

    Source: spec, "Endpoints", Custom fields.
    """

    custom_field: Annotated[CustomField, Field(description="The custom field's definition.")]


class CustomFieldPage(CountedPage):
    """The response of GET /customFields.

    Source: spec, "Endpoints", Custom fields.
    """

    custom_fields: Annotated[ListOf[CustomField], Field(description="Definitions of this page.")]


class ProductConsumption(ProductConsumptionSnapshot, Resource):
    """How much of a product a customer has used.

    Source: spec, "Resources and their fields", Product consumption.
    """

    exceeded_amount: ExceededAmount


class ProductConsumptionsResponse(Resource):
    """The response of GET /customers/products-consumptions/{customerId}, and of the same by alias.

    Source: spec, "Endpoints", Customers.
    """

    products_consumptions: Annotated[
        ListOf[ProductConsumption], Field(description="Product consumption of the customer.")
    ]


class CustomerStatus(StrEnum):
    """The states that are listed."""

    ACTIVE = "Active"


class Contact(Resource):
    """A person at a customer. How the primary one is marked is not stated: see `model_extra`.

    The sandbox takes `isPrimary` for it.

    Source: spec, "Resources and their fields", Customer, contacts.
    """

    name: Annotated[StrictStr | None, Field(description="Name of the contact.", examples=["Ada Byron"])] = (
        None
    )
    email: Annotated[
        StrictStr | None, Field(description="Email address of the contact.", examples=["ada@acme.example"])
    ] = None
    title: Annotated[StrictStr | None, Field(description="Job title of the contact.", examples=["CFO"])] = (
        None
    )
    phone: Annotated[
        StrictStr | None, Field(description="Telephone number.", examples=["+44 20 7946 0018"])
    ] = None
    receive_invoice_email: Annotated[
        StrictBool | None, Field(description="Whether invoices are emailed to the contact.")
    ] = None


class Address(Resource):
    """Where a customer is.

    Source: spec, "Resources and their fields", Customer, address.
    """

    country: Annotated[StrictStr | None, Field(description="Country.", examples=["United Kingdom"])] = None
    country_code: Annotated[StrictStr | None, Field(description="Country code.", examples=["GB"])] = None
    city: Annotated[StrictStr | None, Field(description="City.", examples=["London"])] = None
    address_text: Annotated[
        StrictStr | None, Field(description="Street and number.", examples=["1 High St"])
    ] = None
    state: Annotated[StrictStr | None, Field(description="State.", examples=["England"])] = None
    postal_code: Annotated[StrictStr | None, Field(description="Postal code.", examples=["N1 9GU"])] = None


class CustomerUpdate(Resource):
    """The request of PUT /customers/{customerId}: what is given is changed, what is not stays.

    Source: spec, "Resources and their fields", Customer; "Endpoints", PUT /customers/{customerId}.
    """

    name: Annotated[StrictStr | None, Field(description="Name of the customer.", examples=["Acme Ltd"])] = (
        None
    )
    aliases: Annotated[
        MaybeListOf[StrictStr],
        Field(description="Names by which usage is matched to the customer.", examples=[["acme", "acme-eu"]]),
    ] = None
    contacts: Annotated[
        MaybeListOf[Contact], Field(description="Contacts; invoices are shared with the primary one.")
    ] = None
    source: Annotated[
        StrictStr | None, Field(description="Name of the provider from which the customer was imported.")
    ] = None
    legal_name: Annotated[StrictStr | None, Field(description="Legal name.", examples=["Acme Limited"])] = (
        None
    )
    tax_ids: Annotated[
        MaybeListOf[JsonValue],
        Field(description="Tax ids; the form of an entry is not stated.", examples=[["GB123456789"]]),
    ] = None
    status: Annotated[
        Annotated[StrictStr, AfterValidator(open_enum(CustomerStatus))] | None,
        Field(description="State: Active, or another.", examples=["Active"]),
    ] = None
    tax_id: Annotated[
        StrictStr | None, Field(description="Tax id; replaced by taxIds.", deprecated="use taxIds")
    ] = None
    cloud_provider_settings: Annotated[
        CustomerCloudSettings | None, Field(description="Settings of the customer in a cloud marketplace.")
    ] = None
    external_id: Annotated[
        StrictStr | None,
        Field(description="Id of the customer in your own system.", examples=["crm-7731"]),
    ] = None
    customer_erp_id: Annotated[StrictStr | None, Field(description="Id in the ERP system.")] = None
    address: Annotated[Address | None, Field(description="Billing address.")] = None
    shipping_address: Annotated[Address | None, Field(description="Shipping address.")] = None
    crm_account_id: Annotated[StrictStr | None, Field(description="Id in the CRM system.")] = None
    external_integration: Annotated[
        MaybeListOf[CustomerIntegration],
        Field(description="Counterparts of the customer at other providers."),
    ] = None
    due_days: Annotated[StrictStr | None, Field(description="Payment term, in days.", examples=["30"])] = None
    currency: Annotated[
        StrictStr | None, Field(description="Currency code of the customer's invoices.", examples=["USD"])
    ] = None
    custom_fields: Annotated[
        MaybeListOf[CustomFieldInput], WRITE_ONLY, Field(description="Custom field values to set.")
    ] = None
    custom_field_values: Annotated[
        MaybeListOf[CustomFieldValue], READ_ONLY, Field(description="Current custom field values.")
    ] = None
    subsidiary: Annotated[StrictStr | None, Field(description="Name of the subsidiary.")] = None
    total_outstanding_amount: Annotated[
        ExactDecimal | None,
        READ_ONLY,
        Field(description="Total unpaid amount, in USD.", examples=[Decimal("1249.90")]),
    ] = None
    open_amount: Annotated[
        ExactDecimal | None,
        READ_ONLY,
        Field(description="Amount of invoices without a billing status, in USD.", examples=[Decimal("0.00")]),
    ] = None
    overdue_amount: Annotated[
        ExactDecimal | None,
        READ_ONLY,
        Field(description="Amount of overdue invoices, in USD.", examples=[Decimal("0.00")]),
    ] = None
    pending_payment_amount: Annotated[
        ExactDecimal | None,
        READ_ONLY,
        Field(description="Amount of invoices pending payment, in USD.", examples=[Decimal("1249.90")]),
    ] = None
    paid_amount: Annotated[
        ExactDecimal | None,
        READ_ONLY,
        Field(description="Amount of paid invoices, in USD.", examples=[Decimal("8120.00")]),
    ] = None


class Customer(StoredResource, CustomerUpdate):
    """A customer as the service keeps it.

    Source: spec, "Resources and their fields", Customer.
    """


class CustomerResponse(Resource):
    """The response of the operations on one customer.

    Source: spec, "Endpoints", Customers.
    """

    customer: Annotated[Customer, Field(description="The customer.")]
