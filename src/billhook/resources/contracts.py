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
    OpenEnum,
    PositiveInt,
    UtcDatetime,
)
from billhook.resources.base import READ_ONLY, WRITE_ONLY, CountedPage, PageQuery, Resource, StoredResource
from billhook.resources.credits import CreditGrant
from billhook.resources.customers import (
    CustomFieldInput,
    CustomFieldValue,
    ProductCloudSettings,
    ProductIntegration,
)


class Duration(Resource):
    """A length of time: a number of units.

    Source: spec, "Resources and their fields", ContractProduct, scheduling.
    """

    unit: StrictStr | None = Field(
        default=None, description="Unit of the duration, such as Months.", examples=["Months"]
    )
    value: ExactDecimal | None = Field(
        default=None, description="Length of the duration, in units.", examples=[Decimal(1)]
    )


class Scheduling(Resource):
    """When something is billed.

    Source: spec, "Resources and their fields", ContractProduct, scheduling.
    """

    billing_day: PositiveInt | None = Field(default=None, description="Day of billing, from 1.", examples=[1])
    duration: Duration | None = Field(default=None, description="Billing interval or duration.")


class Discount(Resource):
    """What is taken off a price.

    Source: spec, "Resources and their fields", ContractProduct, pricing.
    """

    name: StrictStr | None = Field(default=None, description="Name of the discount.", examples=["Launch"])
    type: StrictStr | None = Field(default=None, description="Type of discount.")
    amount: ExactDecimal | None = Field(
        default=None, description="Value of the discount.", examples=[Decimal("10.00")]
    )
    recurring: Integer | None = Field(
        default=None, description="Number of times the discount applies.", examples=[3]
    )


class Pricing(Resource):
    """What a product costs.

    Source: spec, "Resources and their fields", ContractProduct, pricing.
    """

    type: StrictStr | None = Field(default=None, description="Pricing model.")
    price: ExactDecimal | None = Field(default=None, description="Price.", examples=[Decimal("0.0125")])
    discount: Discount | None = Field(default=None, description="Discount on the price.")
    is_credit_purchase: StrictBool | None = Field(
        default=None, description="Whether the product buys credits."
    )
    issued_separately: StrictBool | None = Field(
        default=None, description="Whether it is billed on a separate invoice."
    )


class Commitment(Resource):
    """What a customer has promised to use.

    Source: spec, "Resources and their fields", Commitment.
    """

    units: ExactDecimal | None = Field(
        default=None, description="Committed quantity, in units.", examples=[Decimal(10000)]
    )
    price: ExactDecimal | None = Field(
        default=None, description="Price of the commitment.", examples=[Decimal("99.00")]
    )
    type: StrictStr | None = Field(default=None, description="Type of commitment.")
    scheduling: Scheduling | None = Field(default=None, description="Billing schedule of the commitment.")
    overage_strategy: StrictStr | None = Field(
        default=None, description="Treatment of usage beyond the commitment."
    )


class _LineItemFields(Resource, register=False):
    """What a product and a group of them have in common: each is one line item."""

    display_name: StrictStr | None = Field(
        default=None, description="Name on the line item.", examples=["API calls"]
    )
    description: StrictStr | None = Field(default=None, description="Description on the line item.")
    product_erp_id: StrictStr | None = Field(default=None, description="Id of the product in the ERP system.")
    erp_class: StrictStr | None = Field(default=None, description="Class in the ERP system.")
    erp_class_id: StrictStr | None = Field(default=None, description="Id of the class in the ERP system.")
    commitment: Commitment | None = Field(default=None, description="Commitment of the customer.")
    is_calendar_aligned: StrictBool | None = Field(
        default=None, description="Whether billing follows calendar periods."
    )


class ContractProduct(_LineItemFields):
    """A product of a contract.

    Source: spec, "Resources and their fields", ContractProduct.
    """

    disable_description: StrictBool | None = Field(
        default=None, description="Whether the description is left out of the line item."
    )
    scheduling: Scheduling | None = Field(default=None, description="Billing schedule of the product.")
    pricing: Pricing | None = Field(default=None, description="Pricing of the product.")
    catalog_product_id: StrictStr | None = Field(
        default=None, description="Id of the catalog product.", examples=["cat_31"]
    )
    external_integrations: MaybeListOf[ProductIntegration] = Field(
        default=None, description="Counterparts of the product at other providers."
    )
    payment_term: StrictStr | None = Field(default=None, description="Payment term.")
    cloud_provider_settings: ProductCloudSettings | None = Field(
        default=None, description="Settings of the product in a cloud marketplace."
    )
    consumes_credit_product_ids: MaybeListOf[StrictStr] = Field(
        default=None,
        description="Ids of the credit products whose credits the product draws down.",
        examples=[["crp_2"]],
    )


class ProductGroup(_LineItemFields):
    """Products as one line item.

    Source: spec, "Resources and their fields", ProductGroup.
    """

    products: MaybeListOf[ContractProduct] = Field(default=None, description="Products of the group.")
    base_amount: ExactDecimal | None = Field(
        default=None, description="Base amount of the group.", examples=[Decimal("49.00")]
    )


class ContractStatus(StrEnum):
    """The states that are listed."""

    IN_REVIEW = "InReview"
    ACTIVE = "Active"


class _Terms(Resource, register=False):
    """What a new contract and a stored one have in common."""

    start_date: UtcDatetime = Field(description="Start of the contract.", examples=["2026-02-01T00:00:00Z"])
    customer_id: CustomerId
    # No example: a sample has products, and a plan excludes them.
    plan_id: StrictStr | None = Field(
        default=None, description="Id of the plan; used instead of products.", examples=[]
    )
    name: StrictStr | None = Field(
        default=None,
        description="Name of the contract; required without a plan.",
        examples=["Acme annual 2026"],
    )
    crm_opportunity_id: StrictStr | None = Field(
        default=None, description="Id of the opportunity in the CRM."
    )
    end_date: UtcDatetime | None = Field(
        default=None, description="End of the contract.", examples=["2027-01-31T00:00:00Z"]
    )
    signature_date: UtcDatetime | None = Field(
        default=None, description="Time of signing.", examples=["2026-01-14T00:00:00Z"]
    )
    products: MaybeListOf[ContractProduct] = Field(default=None, description="Products of the contract.")
    credit_grants: MaybeListOf[CreditGrant] = Field(
        default=None, description="Credit products that usage products may draw down."
    )
    product_groups: MaybeListOf[ProductGroup] = Field(
        default=None, description="Groups of products; each group is one line item."
    )
    account_manager: StrictStr | None = Field(default=None, description="Owner of the contract.")
    should_pro_rate_invoices: StrictBool | None = Field(
        default=None,
        description="Whether invoices are pro-rated; false if omitted.",
        deprecated="the service has deprecated it",
    )
    auto_renew_contract: StrictBool | None = Field(
        default=None, description="Whether the contract renews automatically; true if omitted."
    )
    custom_fields: Annotated[MaybeListOf[CustomFieldInput], WRITE_ONLY] = Field(
        default=None, description="Custom field values to set."
    )
    custom_field_values: Annotated[MaybeListOf[CustomFieldValue], READ_ONLY] = Field(
        default=None, description="Current custom field values."
    )
    status: Annotated[StrictStr, AfterValidator(OpenEnum(ContractStatus))] | None = Field(
        default=None, description="State: InReview, Active, or another.", examples=["Active"]
    )
    purchase_order: StrictStr | None = Field(default=None, description="Purchase order number.")
    currency: StrictStr | None = Field(default=None, description="Currency code.", examples=["USD"])
    is_trial: StrictBool | None = Field(
        default=None,
        description="Whether the contract and its invoices are a trial; false if omitted.",
        examples=[False],
    )
    external_id: StrictStr | None = Field(
        default=None,
        description="Id of the contract in your own system; usable in place of the service's id.",
        examples=["agr-77"],
    )


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

    deleted_at: Annotated[UtcDatetime | None, READ_ONLY] = Field(
        default=None, description="Time of deletion, if deleted.", examples=["2026-03-01T12:00:00Z"]
    )


class ContractResponse(Resource):
    """The response of the operations on one contract.

    Source: spec, "Endpoints", Contracts.
    """

    contract: Contract = Field(description="The contract.")


class ContractQuery(PageQuery):
    """The query of GET /contracts.

    Source: spec, "Endpoints", GET /contracts.
    """

    customer_id: StrictStr | None = Field(
        default=None, description="Id of the customer to filter by.", examples=["cus_1042"]
    )
    # No example: a sample has customerId, which excludes it.
    customer_external_id: StrictStr | None = Field(
        default=None, description="External id of the customer to filter by.", examples=[]
    )

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

    contracts: ListOf[Contract] = Field(description="Contracts of this page.")
