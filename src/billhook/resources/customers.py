"""Customers, their custom fields and consumption; counterparts in other systems and in marketplaces.

Source: spec, "Resources and their fields", Customer, Product consumption; "Endpoints", Customers.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictStr

from billhook.fields.model import optional
from billhook.fields.types import (
    ConsumedAmount,
    ExceededAmount,
    HasAccess,
    JsonValue,
    ListOf,
    MaybeListOf,
    OpenEnum,
    ProductId,
    ProductName,
    ProvisionedAmount,
    RemainingAmount,
    UsagePercentage,
)
from billhook.resources.base import READ_ONLY, WRITE_ONLY, CountedPage, ReadNumber, Resource, StoredResource


class CustomerIntegration(Resource):
    """A customer's counterpart at another provider.

    Source: spec, "Resources and their fields", Customer, externalIntegration.
    """

    type: StrictStr | None = optional("Name of the provider.", "Salesforce")
    id: StrictStr | None = optional("Id at the provider.", "0015g00000XyZ")
    name: StrictStr | None = optional("Name at the provider.", "Acme")


class ProductIntegration(Resource):
    """A product's or a credit grant's counterpart at another provider.

    Source: spec, "Resources and their fields", ContractProduct, externalIntegrations.
    """

    provider: StrictStr | None = optional("Name of the provider.", "NetSuite")
    external_id: StrictStr | None = optional("Id at the provider.", "4711")


class _CloudSettings(Resource, register=False):
    """A place in a cloud's marketplace."""

    cloud_provider: StrictStr | None = optional("Name of the cloud provider.", "AWS")
    cloud_provider_marketplace_id: StrictStr | None = optional(
        "Id of the product in the cloud marketplace.", "mp-17"
    )


class CustomerCloudSettings(_CloudSettings):
    """A customer in a cloud's marketplace.

    Source: spec, "Resources and their fields", Customer, cloudProviderSettings.
    """

    customer_identifier: StrictStr | None = optional(
        "Customer identifier in the cloud marketplace.", "aws-cust-9"
    )


class ProductCloudSettings(_CloudSettings):
    """A product in a cloud's marketplace.

    Source: spec, "Resources and their fields", ContractProduct, cloudProviderSettings.
    """

    dimension: StrictStr | None = optional("Dimension by which the usage is metered.", "calls")


class _Origin(Resource, register=False):
    """Where a custom field's values come from."""

    integration_source: StrictStr | None = optional("System from which values are taken.", "Salesforce")
    integration_entity_type: StrictStr | None = optional("Entity type in that system.", "Account")
    field_path: StrictStr | None = optional("Path of the value in that entity.", "Region__c")
    custom_field_name: StrictStr | None = optional("Name of the custom field.", "region")
    value_type: StrictStr | None = optional("Type of the value.", "String")


class CustomFieldInput(_Origin):
    """A value to be set.

    Source: spec, "Resources and their fields", Customer, customFields.
    """

    value: JsonValue = optional("Value of the field.", "EMEA")


class CustomFieldValue(Resource):
    """A value that is set.

    Source: spec, "Resources and their fields", Customer, customFieldValues.
    """

    custom_field_definition_id: StrictStr | None = optional("Id of the custom field's definition.", "cfd_4")
    value: StrictStr | None = optional("Value of the field.", "EMEA")
    field_name: StrictStr | None = optional("Name of the field.", "region")


class CustomField(StoredResource, _Origin):
    """The definition of a custom field.

    Source: spec, "Resources and their fields", Custom-field definition.
    """

    entity: StrictStr | None = optional("Type of object that has the field.", "Customer")
    allowed_values: MaybeListOf[StrictStr] = optional("Allowed values.", ["EMEA", "APAC"])
    default_value: StrictStr | None = optional("Default value.", "EMEA")


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


class ProductConsumption(Resource):
    """How much of a product a customer has used.

    Source: spec, "Resources and their fields", Product consumption.
    """

    product_id: ProductId
    product_name: ProductName
    provisioned_amount: ProvisionedAmount
    consumed_amount: ConsumedAmount
    usage_percentage: UsagePercentage
    has_access: HasAccess
    remaining_amount: RemainingAmount
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

    name: StrictStr | None = optional("Name of the contact.", "Ada Byron")
    email: StrictStr | None = optional("Email address of the contact.", "ada@acme.example")
    title: StrictStr | None = optional("Job title of the contact.", "CFO")
    phone: StrictStr | None = optional("Telephone number.", "+44 20 7946 0018")
    receive_invoice_email: StrictBool | None = optional("Whether invoices are emailed to the contact.")


class Address(Resource):
    """Where a customer is.

    Source: spec, "Resources and their fields", Customer, address.
    """

    country: StrictStr | None = optional("Country.", "United Kingdom")
    country_code: StrictStr | None = optional("Country code.", "GB")
    city: StrictStr | None = optional("City.", "London")
    address_text: StrictStr | None = optional("Street and number.", "1 High St")
    state: StrictStr | None = optional("State.", "England")
    postal_code: StrictStr | None = optional("Postal code.", "N1 9GU")


class CustomerUpdate(Resource):
    """The request of PUT /customers/{customerId}: what is given is changed, what is not stays.

    Source: spec, "Resources and their fields", Customer; "Endpoints", PUT /customers/{customerId}.
    """

    name: StrictStr | None = optional("Name of the customer.", "Acme Ltd")
    aliases: MaybeListOf[StrictStr] = optional(
        "Names by which usage is matched to the customer.", ["acme", "acme-eu"]
    )
    contacts: MaybeListOf[Contact] = optional("Contacts; invoices are shared with the primary one.")
    source: StrictStr | None = optional("Name of the provider from which the customer was imported.")
    legal_name: StrictStr | None = optional("Legal name.", "Acme Limited")
    tax_ids: MaybeListOf[JsonValue] = optional(
        "Tax ids; the form of an entry is not stated.", ["GB123456789"]
    )
    status: Annotated[StrictStr, AfterValidator(OpenEnum(CustomerStatus))] | None = optional(
        "State: Active, or another.", "Active"
    )
    tax_id: StrictStr | None = optional("Tax id; replaced by taxIds.", deprecated="use taxIds")
    cloud_provider_settings: CustomerCloudSettings | None = optional(
        "Settings of the customer in a cloud marketplace."
    )
    external_id: StrictStr | None = optional("Id of the customer in your own system.", "crm-7731")
    customer_erp_id: StrictStr | None = optional("Id in the ERP system.")
    address: Address | None = optional("Billing address.")
    shipping_address: Address | None = optional("Shipping address.")
    crm_account_id: StrictStr | None = optional("Id in the CRM system.")
    external_integration: MaybeListOf[CustomerIntegration] = optional(
        "Counterparts of the customer at other providers."
    )
    due_days: StrictStr | None = optional("Payment term, in days.", "30")
    currency: StrictStr | None = optional("Currency code of the customer's invoices.", "USD")
    custom_fields: Annotated[MaybeListOf[CustomFieldInput], WRITE_ONLY] = optional(
        "Custom field values to set."
    )
    custom_field_values: Annotated[MaybeListOf[CustomFieldValue], READ_ONLY] = optional(
        "Current custom field values."
    )
    subsidiary: StrictStr | None = optional("Name of the subsidiary.")
    total_outstanding_amount: ReadNumber = optional("Total unpaid amount, in USD.", Decimal("1249.90"))
    open_amount: ReadNumber = optional(
        "Amount of invoices without a billing status, in USD.", Decimal("0.00")
    )
    overdue_amount: ReadNumber = optional("Amount of overdue invoices, in USD.", Decimal("0.00"))
    pending_payment_amount: ReadNumber = optional(
        "Amount of invoices pending payment, in USD.", Decimal("1249.90")
    )
    paid_amount: ReadNumber = optional("Amount of paid invoices, in USD.", Decimal("8120.00"))


class Customer(StoredResource, CustomerUpdate):
    """A customer as the service keeps it.

    Source: spec, "Resources and their fields", Customer.
    """


class CustomerResponse(Resource):
    """The response of the operations on one customer.

    Source: spec, "Endpoints", Customers.
    """

    customer: Customer = Field(description="The customer.")
