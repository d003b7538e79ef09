"""Contracts and the products they sell.

Source: spec, "Resources and their fields", Contract, ContractProduct, ProductGroup; "Endpoints", Contracts.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictStr, model_validator

from billhook.errors import FieldConflict, FieldMissing
from billhook.fields.model import optional
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

    unit: StrictStr | None = optional("Unit of the duration, such as Months.", "Months")
    value: ExactDecimal | None = optional("Length of the duration, in units.", Decimal(1))


class Scheduling(Resource):
    """When something is billed.

    Source: spec, "Resources and their fields", ContractProduct, scheduling.
    """

    billing_day: PositiveInt | None = optional("Day of billing, from 1.", 1)
    duration: Duration | None = optional("Billing interval or duration.")


class Discount(Resource):
    """What is taken off a price.

    Source: spec, "Resources and their fields", ContractProduct, pricing.
    """

    name: StrictStr | None = optional("Name of the discount.", "Launch")
    type: StrictStr | None = optional("Type of discount.")
    amount: ExactDecimal | None = optional("Value of the discount.", Decimal("10.00"))
    recurring: Integer | None = optional("Number of times the discount applies.", 3)


class Pricing(Resource):
    """What a product costs.

    Source: spec, "Resources and their fields", ContractProduct, pricing.
    """

    type: StrictStr | None = optional("Pricing model.")
    price: ExactDecimal | None = optional("Price.", Decimal("0.0125"))
    discount: Discount | None = optional("Discount on the price.")
    is_credit_purchase: StrictBool | None = optional("Whether the product buys credits.")
    issued_separately: StrictBool | None = optional("Whether it is billed on a separate invoice.")


class Commitment(Resource):
    """What a customer has promised to use.

    Source: spec, "Resources and their fields", Commitment.
    """

    units: ExactDecimal | None = optional("Committed quantity, in units.", Decimal(10000))
    price: ExactDecimal | None = optional("Price of the commitment.", Decimal("99.00"))
    type: StrictStr | None = optional("Type of commitment.")
    scheduling: Scheduling | None = optional("Billing schedule of the commitment.")
    overage_strategy: StrictStr | None = optional("Treatment of usage beyond the commitment.")


class _LineItemFields(Resource, register=False):
    """What a product and a group of them have in common: each is one line item."""

    display_name: StrictStr | None = optional("Name on the line item.", "API calls")
    description: StrictStr | None = optional("Description on the line item.")
    product_erp_id: StrictStr | None = optional("Id of the product in the ERP system.")
    erp_class: StrictStr | None = optional("Class in the ERP system.")
    erp_class_id: StrictStr | None = optional("Id of the class in the ERP system.")
    commitment: Commitment | None = optional("Commitment of the customer.")
    is_calendar_aligned: StrictBool | None = optional("Whether billing follows calendar periods.")


class ContractProduct(_LineItemFields):
    """A product of a contract.

    Source: spec, "Resources and their fields", ContractProduct.
    """

    disable_description: StrictBool | None = optional("Whether the description is left out of the line item.")
    scheduling: Scheduling | None = optional("Billing schedule of the product.")
    pricing: Pricing | None = optional("Pricing of the product.")
    catalog_product_id: StrictStr | None = optional("Id of the catalog product.", "cat_31")
    external_integrations: MaybeListOf[ProductIntegration] = optional(
        "Counterparts of the product at other providers."
    )
    payment_term: StrictStr | None = optional("Payment term.")
    cloud_provider_settings: ProductCloudSettings | None = optional(
        "Settings of the product in a cloud marketplace."
    )
    consumes_credit_product_ids: MaybeListOf[StrictStr] = optional(
        "Ids of the credit products whose credits the product draws down.", ["crp_2"]
    )


class ProductGroup(_LineItemFields):
    """Products as one line item.

    Source: spec, "Resources and their fields", ProductGroup.
    """

    products: MaybeListOf[ContractProduct] = optional("Products of the group.")
    base_amount: ExactDecimal | None = optional("Base amount of the group.", Decimal("49.00"))


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
    name: StrictStr | None = optional("Name of the contract; required without a plan.", "Acme annual 2026")
    crm_opportunity_id: StrictStr | None = optional("Id of the opportunity in the CRM.")
    end_date: UtcDatetime | None = optional("End of the contract.", "2027-01-31T00:00:00Z")
    signature_date: UtcDatetime | None = optional("Time of signing.", "2026-01-14T00:00:00Z")
    products: MaybeListOf[ContractProduct] = optional("Products of the contract.")
    credit_grants: MaybeListOf[CreditGrant] = optional("Credit products that usage products may draw down.")
    product_groups: MaybeListOf[ProductGroup] = optional("Groups of products; each group is one line item.")
    account_manager: StrictStr | None = optional("Owner of the contract.")
    should_pro_rate_invoices: StrictBool | None = optional(
        "Whether invoices are pro-rated; false if omitted.", deprecated="the service has deprecated it"
    )
    auto_renew_contract: StrictBool | None = optional(
        "Whether the contract renews automatically; true if omitted."
    )
    custom_fields: Annotated[MaybeListOf[CustomFieldInput], WRITE_ONLY] = optional(
        "Custom field values to set."
    )
    custom_field_values: Annotated[MaybeListOf[CustomFieldValue], READ_ONLY] = optional(
        "Current custom field values."
    )
    status: Annotated[StrictStr, AfterValidator(OpenEnum(ContractStatus))] | None = optional(
        "State: InReview, Active, or another.", "Active"
    )
    purchase_order: StrictStr | None = optional("Purchase order number.")
    currency: StrictStr | None = optional("Currency code.", "USD")
    is_trial: StrictBool | None = optional(
        "Whether the contract and its invoices are a trial; false if omitted.", False
    )
    external_id: StrictStr | None = optional(
        "Id of the contract in your own system; usable in place of the service's id.", "agr-77"
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

    deleted_at: Annotated[UtcDatetime | None, READ_ONLY] = optional(
        "Time of deletion, if deleted.", "2026-03-01T12:00:00Z"
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

    customer_id: StrictStr | None = optional("Id of the customer to filter by.", "cus_1042")
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
