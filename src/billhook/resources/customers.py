"""Customers. Source: spec, "Resources and their fields", Customer; "Endpoints", Customers."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from billhook.resources.base import READ_ONLY, WRITE_ONLY, Resource, Stored
from billhook.resources.custom_fields import CustomFieldInput, CustomFieldValue
from billhook.resources.integrations import CustomerCloudSettings, CustomerIntegration
from billhook.wire.fields import Flag, JsonValue, MaybeListOf, Number, Text, recognised

__all__ = ["Address", "Contact", "Customer", "CustomerResponse", "CustomerStatus", "CustomerUpdate"]


class CustomerStatus(StrEnum):
    """The states that are listed."""

    ACTIVE = "Active"


class Contact(Resource):
    """A person at a customer. How the primary one is marked is not stated: see `model_extra`.

    The sandbox takes `isPrimary` for it.

    Source: spec, "Resources and their fields", Customer, contacts.
    """

    name: Annotated[Text | None, Field(description="Name of the person.", examples=["Ada Byron"])] = None
    email: Annotated[
        Text | None, Field(description="Address of the person.", examples=["ada@acme.example"])
    ] = None
    title: Annotated[Text | None, Field(description="Title of the person.", examples=["CFO"])] = None
    phone: Annotated[Text | None, Field(description="Telephone number.", examples=["+44 20 7946 0018"])] = (
        None
    )
    receive_invoice_email: Annotated[Flag | None, Field(description="Do invoices go there by mail?")] = None


class Address(Resource):
    """Where a customer is.

    Source: spec, "Resources and their fields", Customer, address.
    """

    country: Annotated[Text | None, Field(description="The country.", examples=["United Kingdom"])] = None
    country_code: Annotated[Text | None, Field(description="The country's code.", examples=["GB"])] = None
    city: Annotated[Text | None, Field(description="The city.", examples=["London"])] = None
    address_text: Annotated[Text | None, Field(description="Street and number.", examples=["1 High St"])] = (
        None
    )
    state: Annotated[Text | None, Field(description="The state.", examples=["England"])] = None
    postal_code: Annotated[Text | None, Field(description="The postal code.", examples=["N1 9GU"])] = None


class CustomerUpdate(Resource):
    """The request of PUT /customers/{customerId}: what is given is changed, what is not stays.

    Source: spec, "Resources and their fields", Customer; "Endpoints", PUT /customers/{customerId}.
    """

    name: Annotated[Text | None, Field(description="Name of the customer.", examples=["Acme Ltd"])] = None
    aliases: Annotated[
        MaybeListOf[Text],
        Field(description="Names by which usage is matched to the customer.", examples=[["acme", "acme-eu"]]),
    ] = None
    contacts: Annotated[
        MaybeListOf[Contact], Field(description="People; invoices are shared with the primary one.")
    ] = None
    source: Annotated[Text | None, Field(description="Name of the provider that it came from.")] = None
    legal_name: Annotated[Text | None, Field(description="Legal name.", examples=["Acme Limited"])] = None
    tax_ids: Annotated[
        MaybeListOf[JsonValue],
        Field(description="Tax ids; the form of one is not stated.", examples=[["GB123456789"]]),
    ] = None
    status: Annotated[
        Annotated[Text, AfterValidator(recognised(CustomerStatus))] | None,
        Field(description="State: Active, or another.", examples=["Active"]),
    ] = None
    tax_id: Annotated[
        Text | None, Field(description="The tax id; replaced by taxIds.", deprecated="use taxIds")
    ] = None
    cloud_provider_settings: Annotated[
        CustomerCloudSettings | None, Field(description="The customer in a cloud's marketplace.")
    ] = None
    external_id: Annotated[
        Text | None, Field(description="Id that the customer has in your own system.", examples=["crm-7731"])
    ] = None
    customer_erp_id: Annotated[Text | None, Field(description="Id in the ERP system.")] = None
    address: Annotated[Address | None, Field(description="Where the customer is.")] = None
    shipping_address: Annotated[Address | None, Field(description="Where goods for it go.")] = None
    crm_account_id: Annotated[Text | None, Field(description="Id in the CRM system.")] = None
    external_integration: Annotated[
        MaybeListOf[CustomerIntegration], Field(description="Counterparts at other providers.")
    ] = None
    due_days: Annotated[Text | None, Field(description="Days to pay in.", examples=["30"])] = None
    currency: Annotated[Text | None, Field(description="Currency code of its bills.", examples=["USD"])] = (
        None
    )
    custom_fields: Annotated[
        MaybeListOf[CustomFieldInput], WRITE_ONLY, Field(description="Values of custom fields, to be set.")
    ] = None
    custom_field_values: Annotated[
        MaybeListOf[CustomFieldValue], READ_ONLY, Field(description="Values of custom fields, as they are.")
    ] = None
    subsidiary: Annotated[Text | None, Field(description="Name of the subsidiary.")] = None
    total_outstanding_amount: Annotated[
        Number | None,
        READ_ONLY,
        Field(description="All that is unpaid, in USD.", examples=[Decimal("1249.90")]),
    ] = None
    open_amount: Annotated[
        Number | None,
        READ_ONLY,
        Field(description="Of invoices without a billing status, in USD.", examples=[Decimal("0.00")]),
    ] = None
    overdue_amount: Annotated[
        Number | None,
        READ_ONLY,
        Field(description="Of overdue invoices, in USD.", examples=[Decimal("0.00")]),
    ] = None
    pending_payment_amount: Annotated[
        Number | None,
        READ_ONLY,
        Field(description="Of invoices pending payment, in USD.", examples=[Decimal("1249.90")]),
    ] = None
    paid_amount: Annotated[
        Number | None,
        READ_ONLY,
        Field(description="Of paid invoices, in USD.", examples=[Decimal("8120.00")]),
    ] = None


class Customer(Stored, CustomerUpdate):
    """A customer as the service keeps it.

    Source: spec, "Resources and their fields", Customer.
    """


class CustomerResponse(Resource):
    """The response of the operations on one customer.

    Source: spec, "Endpoints", Customers.
    """

    customer: Annotated[Customer, Field(description="The customer.")]
