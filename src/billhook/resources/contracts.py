"""Contracts and the products they sell.

Source: spec, "Resources and their fields", Contract, ContractProduct, ProductGroup; "Endpoints", Contracts.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictStr, model_validator

from billhook.errors import FieldConflict, FieldMissing
from billhook.fields.types import (
    CustomerId,
    ExactDecimal,
    Integer,
    ListOf,
    MaybeListOf,
    PositiveInt,
    UtcDatetime,
    open_enum,
)
from billhook.resources.base import READ_ONLY, WRITE_ONLY, CountedPage, PageQuery, Resource, StoredResource
from billhook.resources.credits import CreditGrant
from billhook.resources.customers import CustomFieldInput, CustomFieldValue
from billhook.resources.integrations import ProductCloudSettings, ProductIntegration


class Duration(Resource):
    """A length of time: a number of units.

    Source: spec, "Resources and their fields", ContractProduct, scheduling.
    """

    unit: Annotated[
        StrictStr | None, Field(description="Unit of the duration, such as Months.", examples=["Months"])
    ] = None
    value: Annotated[
        ExactDecimal | None, Field(description="Length of the duration, in units.", examples=[Decimal(1)])
    ] = None


class Scheduling(Resource):
    """When something is billed.

    Source: spec, "Resources and their fields", ContractProduct, scheduling.
    """

    billing_day: Annotated[PositiveInt | None, Field(description="Day of billing, from 1.", examples=[1])] = (
        None
    )
    duration: Annotated[Duration | None, Field(description="Billing interval or duration.")] = None


class Discount(Resource):
    """What is taken off a price.

    Source: spec, "Resources and their fields", ContractProduct, pricing.
    """

    name: Annotated[StrictStr | None, Field(description="Name of the discount.", examples=["Launch"])] = None
    type: Annotated[StrictStr | None, Field(description="Type of discount.")] = None
    amount: Annotated[
        ExactDecimal | None, Field(description="Value of the discount.", examples=[Decimal("10.00")])
    ] = None
    recurring: Annotated[
        Integer | None, Field(description="Number of times the discount applies.", examples=[3])
    ] = None


class Pricing(Resource):
    """What a product costs.

    Source: spec, "Resources and their fields", ContractProduct, pricing.
    """

    type: Annotated[StrictStr | None, Field(description="Pricing model.")] = None
    price: Annotated[ExactDecimal | None, Field(description="Price.", examples=[Decimal("0.0125")])] = None
    discount: Annotated[Discount | None, Field(description="Discount on the price.")] = None
    is_credit_purchase: Annotated[
        StrictBool | None, Field(description="Whether the product buys credits.")
    ] = None
    issued_separately: Annotated[
        StrictBool | None, Field(description="Whether it is billed on a separate invoice.")
    ] = None


class Commitment(Resource):
    """What a customer has promised to use.

    Source: spec, "Resources and their fields", Commitment.
    """

    units: Annotated[
        ExactDecimal | None, Field(description="Committed quantity, in units.", examples=[Decimal(10000)])
    ] = None
    price: Annotated[
        ExactDecimal | None, Field(description="Price of the commitment.", examples=[Decimal("99.00")])
    ] = None
    type: Annotated[StrictStr | None, Field(description="Type of commitment.")] = None
    scheduling: Annotated[Scheduling | None, Field(description="Billing schedule of the commitment.")] = None
    overage_strategy: Annotated[
        StrictStr | None, Field(description="Treatment of usage beyond the commitment.")
    ] = None


class _LineItemFields(Resource, register=False):
    """What a product and a group of them have in common: each is one line item."""

    display_name: Annotated[
        StrictStr | None, Field(description="Name on the line item.", examples=["API calls"])
    ] = None
    description: Annotated[StrictStr | None, Field(description="Description on the line item.")] = None
    product_erp_id: Annotated[StrictStr | None, Field(description="Id of the product in the ERP system.")] = (
        None
    )
    erp_class: Annotated[StrictStr | None, Field(description="Class in the ERP system.")] = None
    erp_class_id: Annotated[StrictStr | None, Field(description="Id of the class in the ERP system.")] = None
    commitment: Annotated[Commitment | None, Field(description="Commitment of the customer.")] = None
    is_calendar_aligned: Annotated[
        StrictBool | None, Field(description="Whether billing follows calendar periods.")
    ] = None


class ContractProduct(_LineItemFields):
    """A product of a contract.

    Source: spec, "Resources and their fields", ContractProduct.
    """

    disable_description: Annotated[
        StrictBool | None, Field(description="Whether the description is left out of the line item.")
    ] = None
    scheduling: Annotated[Scheduling | None, Field(description="Billing schedule of the product.")] = None
    pricing: Annotated[Pricing | None, Field(description="Pricing of the product.")] = None
    catalog_product_id: Annotated[
        StrictStr | None, Field(description="Id of the catalog product.", examples=["cat_31"])
    ] = None
    external_integrations: Annotated[
        MaybeListOf[ProductIntegration], Field(description="Counterparts of the product at other providers.")
    ] = None
    payment_term: Annotated[StrictStr | None, Field(description="Payment term.")] = None
    cloud_provider_settings: Annotated[
        ProductCloudSettings | None, Field(description="Settings of the product in a cloud marketplace.")
    ] = None
    consumes_credit_product_ids: Annotated[
        MaybeListOf[StrictStr],
        Field(
            description="Ids of the credit products whose credits the product draws down.",
            examples=[["crp_2"]],
        ),
    ] = None


class ProductGroup(_LineItemFields):
    """Products as one line item.

    Source: spec, "Resources and their fields", ProductGroup.
    """

    products: Annotated[MaybeListOf[ContractProduct], Field(description="Products of the group.")] = None
    base_amount: Annotated[
        ExactDecimal | None, Field(description="Base amount of the group.", examples=[Decimal("49.00")])
    ] = None


class ContractStatus(StrEnum):
    """The states that are listed."""

    IN_REVIEW = "InReview"
    ACTIVE = "Active"


class _Terms(Resource, register=False):
    """What a new contract and a stored one have in common."""

    start_date: Annotated[
        UtcDatetime, Field(description="Start of the contract.", examples=["2026-02-01T00:00:00Z"])
    ]
    customer_id: CustomerId
    # No example: a sample has products, and a plan excludes them.
    plan_id: Annotated[
        StrictStr | None,
        Field(description="Id of the plan; used instead of products.", examples=[]),
    ] = None
    name: Annotated[
        StrictStr | None,
        Field(description="Name of the contract; required without a plan.", examples=["Acme annual 2026"]),
    ] = None
    crm_opportunity_id: Annotated[
        StrictStr | None, Field(description="Id of the opportunity in the CRM.")
    ] = None
    end_date: Annotated[
        UtcDatetime | None, Field(description="End of the contract.", examples=["2027-01-31T00:00:00Z"])
    ] = None
    signature_date: Annotated[
        UtcDatetime | None, Field(description="Time of signing.", examples=["2026-01-14T00:00:00Z"])
    ] = None
    products: Annotated[MaybeListOf[ContractProduct], Field(description="Products of the contract.")] = None
    credit_grants: Annotated[
        MaybeListOf[CreditGrant], Field(description="Credit products that usage products may draw down.")
    ] = None
    product_groups: Annotated[
        MaybeListOf[ProductGroup], Field(description="Groups of products; each group is one line item.")
    ] = None
    account_manager: Annotated[StrictStr | None, Field(description="Owner of the contract.")] = None
    should_pro_rate_invoices: Annotated[
        StrictBool | None,
        Field(
            description="Whether invoices are pro-rated; false if omitted.",
            deprecated="the service has deprecated it",
        ),
    ] = None
    auto_renew_contract: Annotated[
        StrictBool | None, Field(description="Whether the contract renews automatically; true if omitted.")
    ] = None
    custom_fields: Annotated[
        MaybeListOf[CustomFieldInput], WRITE_ONLY, Field(description="Custom field values to set.")
    ] = None
    custom_field_values: Annotated[
        MaybeListOf[CustomFieldValue], READ_ONLY, Field(description="Current custom field values.")
    ] = None
    status: Annotated[
        Annotated[StrictStr, AfterValidator(open_enum(ContractStatus))] | None,
        Field(description="State: InReview, Active, or another.", examples=["Active"]),
    ] = None
    purchase_order: Annotated[StrictStr | None, Field(description="Purchase order number.")] = None
    currency: Annotated[StrictStr | None, Field(description="Currency code.", examples=["USD"])] = None
    is_trial: Annotated[
        StrictBool | None,
        Field(
            description="Whether the contract and its invoices are a trial; false if omitted.",
            examples=[False],
        ),
    ] = None
    external_id: Annotated[
        StrictStr | None,
        Field(
            description="Id of the contract in your own system; usable in place of the service's id.",
            examples=["agr-77"],
        ),
    ] = None


class NewContract(_Terms):
    """The request of POST /contracts: a plan, or a name and products.

    Source: spec, "Resources and their fields", Contract; "Endpoints", POST /contracts.
    """

    @model_validator(mode="after")
    def _plan_or_products(self) -> NewContract:
        if not self.plan_id:
            if not self.name:
                raise FieldMissing("name is required when planId is not provided: give one of them", "name")
            return self
        inline = {"products": self.products, "productGroups": self.product_groups}
        given = [name for name, value in inline.items() if value]
        if given:
            raise FieldConflict(
                f"planId and {' and '.join(given)} are mutually exclusive, for the plan is used as is: "
                "give one of them",
                "planId",
                *given,
            )
        return self


class Contract(StoredResource, _Terms):
    """A contract as the service keeps it.

    Source: spec, "Resources and their fields", Contract.
    """

    deleted_at: Annotated[
        UtcDatetime | None,
        READ_ONLY,
        Field(description="Time of deletion, if deleted.", examples=["2026-03-01T12:00:00Z"]),
    ] = None


class ContractResponse(Resource):
    """The response of the operations on one contract.

    Source: spec, "Endpoints", Contracts.
    """

    contract: Annotated[Contract, Field(description="The contract.")]


class ContractQuery(PageQuery):
    """The query of GET /contracts.

    Source: spec, "Endpoints", GET /contracts.
    """

    customer_id: Annotated[
        StrictStr | None, Field(description="Id of the customer to filter by.", examples=["cus_1042"])
    ] = None
    # No example: a sample has customerId, which excludes it.
    customer_external_id: Annotated[
        StrictStr | None,
        Field(description="External id of the customer to filter by.", examples=[]),
    ] = None

    @model_validator(mode="after")
    def _one_customer(self) -> ContractQuery:
        if self.customer_id is not None and self.customer_external_id is not None:
            raise FieldConflict(
                "at most one of customerId and customerExternalId may be given",
                "customerId",
                "customerExternalId",
            )
        return self


class ContractPage(CountedPage):
    """The response of GET /contracts.

    Source: spec, "Endpoints", GET /contracts.
    """

    contracts: Annotated[ListOf[Contract], Field(description="Contracts of this page.")]
