"""Customers, their custom fields and consumption; counterparts in other systems and in marketplaces.

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
    OpenEnum,
    ProductConsumptionSnapshot,
)
from billhook.resources.base import READ_ONLY, WRITE_ONLY, CountedPage, Resource, StoredResource


class CustomerIntegration(Resource):
    """A customer's counterpart at another provider.

    Source: spec, "Resources and their fields", Customer, externalIntegration.
    """

    type: StrictStr | None = Field(default=None, description="Name of the provider.", examples=["Salesforce"])
    id: StrictStr | None = Field(default=None, description="Id at the provider.", examples=["0015g00000XyZ"])
    name: StrictStr | None = Field(default=None, description="Name at the provider.", examples=["Acme"])


class ProductIntegration(Resource):
    """A product's or a credit grant's counterpart at another provider.

    Source: spec, "Resources and their fields", ContractProduct, externalIntegrations.
    """

    provider: StrictStr | None = Field(
        default=None, description="Name of the provider.", examples=["NetSuite"]
    )
    external_id: StrictStr | None = Field(default=None, description="Id at the provider.", examples=["4711"])


class _CloudSettings(Resource, register=False):
    """A place in a cloud's marketplace."""

    cloud_provider: StrictStr | None = Field(
        default=None, description="Name of the cloud provider.", examples=["AWS"]
    )
    cloud_provider_marketplace_id: StrictStr | None = Field(
        default=None, description="Id of the product in the cloud marketplace.", examples=["mp-17"]
    )


class CustomerCloudSettings(_CloudSettings):
    """A customer in a cloud's marketplace.

    Source: spec, "Resources and their fields", Customer, cloudProviderSettings.
    """

    customer_identifier: StrictStr | None = Field(
        default=None, description="Customer identifier in the cloud marketplace.", examples=["aws-cust-9"]
    )


class ProductCloudSettings(_CloudSettings):
    """A product in a cloud's marketplace.

    Source: spec, "Resources and their fields", ContractProduct, cloudProviderSettings.
    """

    dimension: StrictStr | None = Field(
        default=None, description="Dimension by which the usage is metered.", examples=["calls"]
    )


class _Origin(Resource, register=False):
    """Where a custom field's values come from."""

    integration_source: StrictStr | None = Field(
        default=None, description="System from which values are taken.", examples=["Salesforce"]
    )
    integration_entity_type: StrictStr | None = Field(
        default=None, description="Entity type in that system.", examples=["Account"]
    )
    field_path: StrictStr | None = Field(
        default=None, description="Path of the value in that entity.", examples=["Region__c"]
    )
    custom_field_name: StrictStr | None = Field(
        default=None, description="Name of the custom field.", examples=["region"]
    )
    value_type: StrictStr | None = Field(default=None, description="Type of the value.", examples=["String"])


class CustomFieldInput(_Origin):
    """A value to be set.

    Source: spec, "Resources and their fields", Customer, customFields.
    """

    value: JsonValue = Field(default=None, description="Value of the field.", examples=["EMEA"])


class CustomFieldValue(Resource):
    """A value that is set.

    Source: spec, "Resources and their fields", Customer, customFieldValues.
    """

    custom_field_definition_id: StrictStr | None = Field(
        default=None, description="Id of the custom field's definition.", examples=["cfd_4"]
    )
    value: StrictStr | None = Field(default=None, description="Value of the field.", examples=["EMEA"])
    field_name: StrictStr | None = Field(default=None, description="Name of the field.", examples=["region"])


class CustomField(StoredResource, _Origin):
    """The definition of a custom field.

    Source: spec, "Resources and their fields", Custom-field definition.
    """

    entity: StrictStr | None = Field(
        default=None, description="Type of object that has the field.", examples=["Customer"]
    )
    allowed_values: MaybeListOf[StrictStr] = Field(
        default=None, description="Allowed values.", examples=[["EMEA", "APAC"]]
    )
    default_value: StrictStr | None = Field(default=None, description="Default value.", examples=["EMEA"])


class CustomFieldResponse(Resource):
    """The response of GET /customFields/{customFieldId}.

    Source: spec, "Endpoints", Custom fields.
    """

    custom_field: CustomField = Field(description="The custom field's definition.")


class CustomFieldPage(CountedPage):
    """The response of GET /customFields.

    Source: spec, "Endpoints", Custom fields.
    """

    custom_fields: ListOf[CustomField] = Field(description="Definitions of this page.")


class ProductConsumption(ProductConsumptionSnapshot, Resource):
    """How much of a product a customer has used.

    Source: spec, "Resources and their fields", Product consumption.
    """

    exceeded_amount: ExceededAmount


class ProductConsumptionsResponse(Resource):
    """The response of GET /customers/products-consumptions/{customerId}, and of the same by alias.

    Source: spec, "Endpoints", Customers.
    """

    products_consumptions: ListOf[ProductConsumption] = Field(
        description="Product consumption of the customer."
    )


class CustomerStatus(StrEnum):
    """The states that are listed."""

    ACTIVE = "Active"


class Contact(Resource):
    """A person at a customer. How the primary one is marked is not stated: see `model_extra`.

    The sandbox takes `isPrimary` for it.

    Source: spec, "Resources and their fields", Customer, contacts.
    """

    name: StrictStr | None = Field(default=None, description="Name of the contact.", examples=["Ada Byron"])
    email: StrictStr | None = Field(
        default=None, description="Email address of the contact.", examples=["ada@acme.example"]
    )
    title: StrictStr | None = Field(default=None, description="Job title of the contact.", examples=["CFO"])
    phone: StrictStr | None = Field(
        default=None, description="Telephone number.", examples=["+44 20 7946 0018"]
    )
    receive_invoice_email: StrictBool | None = Field(
        default=None, description="Whether invoices are emailed to the contact."
    )


class Address(Resource):
    """Where a customer is.

    Source: spec, "Resources and their fields", Customer, address.
    """

    country: StrictStr | None = Field(default=None, description="Country.", examples=["United Kingdom"])
    country_code: StrictStr | None = Field(default=None, description="Country code.", examples=["GB"])
    city: StrictStr | None = Field(default=None, description="City.", examples=["London"])
    address_text: StrictStr | None = Field(
        default=None, description="Street and number.", examples=["1 High St"]
    )
    state: StrictStr | None = Field(default=None, description="State.", examples=["England"])
    postal_code: StrictStr | None = Field(default=None, description="Postal code.", examples=["N1 9GU"])


class CustomerUpdate(Resource):
    """The request of PUT /customers/{customerId}: what is given is changed, what is not stays.

    Source: spec, "Resources and their fields", Customer; "Endpoints", PUT /customers/{customerId}.
    """

    name: StrictStr | None = Field(default=None, description="Name of the customer.", examples=["Acme Ltd"])
    aliases: MaybeListOf[StrictStr] = Field(
        default=None,
        description="Names by which usage is matched to the customer.",
        examples=[["acme", "acme-eu"]],
    )
    contacts: MaybeListOf[Contact] = Field(
        default=None, description="Contacts; invoices are shared with the primary one."
    )
    source: StrictStr | None = Field(
        default=None, description="Name of the provider from which the customer was imported."
    )
    legal_name: StrictStr | None = Field(default=None, description="Legal name.", examples=["Acme Limited"])
    tax_ids: MaybeListOf[JsonValue] = Field(
        default=None, description="Tax ids; the form of an entry is not stated.", examples=[["GB123456789"]]
    )
    status: Annotated[StrictStr, AfterValidator(OpenEnum(CustomerStatus))] | None = Field(
        default=None, description="State: Active, or another.", examples=["Active"]
    )
    tax_id: StrictStr | None = Field(
        default=None, description="Tax id; replaced by taxIds.", deprecated="use taxIds"
    )
    cloud_provider_settings: CustomerCloudSettings | None = Field(
        default=None, description="Settings of the customer in a cloud marketplace."
    )
    external_id: StrictStr | None = Field(
        default=None, description="Id of the customer in your own system.", examples=["crm-7731"]
    )
    customer_erp_id: StrictStr | None = Field(default=None, description="Id in the ERP system.")
    address: Address | None = Field(default=None, description="Billing address.")
    shipping_address: Address | None = Field(default=None, description="Shipping address.")
    crm_account_id: StrictStr | None = Field(default=None, description="Id in the CRM system.")
    external_integration: MaybeListOf[CustomerIntegration] = Field(
        default=None, description="Counterparts of the customer at other providers."
    )
    due_days: StrictStr | None = Field(default=None, description="Payment term, in days.", examples=["30"])
    currency: StrictStr | None = Field(
        default=None, description="Currency code of the customer's invoices.", examples=["USD"]
    )
    custom_fields: Annotated[MaybeListOf[CustomFieldInput], WRITE_ONLY] = Field(
        default=None, description="Custom field values to set."
    )
    custom_field_values: Annotated[MaybeListOf[CustomFieldValue], READ_ONLY] = Field(
        default=None, description="Current custom field values."
    )
    subsidiary: StrictStr | None = Field(default=None, description="Name of the subsidiary.")
    total_outstanding_amount: Annotated[ExactDecimal | None, READ_ONLY] = Field(
        default=None, description="Total unpaid amount, in USD.", examples=[Decimal("1249.90")]
    )
    open_amount: Annotated[ExactDecimal | None, READ_ONLY] = Field(
        default=None,
        description="Amount of invoices without a billing status, in USD.",
        examples=[Decimal("0.00")],
    )
    overdue_amount: Annotated[ExactDecimal | None, READ_ONLY] = Field(
        default=None, description="Amount of overdue invoices, in USD.", examples=[Decimal("0.00")]
    )
    pending_payment_amount: Annotated[ExactDecimal | None, READ_ONLY] = Field(
        default=None, description="Amount of invoices pending payment, in USD.", examples=[Decimal("1249.90")]
    )
    paid_amount: Annotated[ExactDecimal | None, READ_ONLY] = Field(
        default=None, description="Amount of paid invoices, in USD.", examples=[Decimal("8120.00")]
    )


class Customer(StoredResource, CustomerUpdate):
    """A customer as the service keeps it.

    Source: spec, "Resources and their fields", Customer.
    """


class CustomerResponse(Resource):
    """The response of the operations on one customer.

    Source: spec, "Endpoints", Customers.
    """

    customer: Customer = Field(description="The customer.")
