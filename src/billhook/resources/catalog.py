"""The product catalog, and plans.

Source: spec, "Resources and their fields", Catalog product; Plan; "Endpoints".
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictStr

from billhook.fields.model import optional
from billhook.fields.types import ExactDecimal, Integer, ListOf, OpenEnum
from billhook.resources.base import READ_ONLY, CountedPage, ReadText, Resource, StoredResource


class CatalogProductUpdate(Resource):
    """The request of PUT /catalogProducts/{catalogProductId}: what is given is changed, what is not stays.

    Source: spec, "Endpoints", Catalog products.
    """

    name: StrictStr | None = optional("Name of the product.", "API calls")
    description: StrictStr | None = optional("Type of product.", "Calls of the public API")
    product_code: StrictStr | None = optional("Product code.", "API-1")
    disable_description: StrictBool | None = optional(
        "Whether the default description is left out of line items.", False
    )
    external_id: StrictStr | None = optional("Id of the product in your own system.", "sku-100")


class NewCatalogProduct(CatalogProductUpdate):
    """The request of POST /catalogProducts.

    Source: spec, "Resources and their fields", Catalog product.
    """

    name: StrictStr = Field(description="Name of the product.", examples=["API calls"])


class CatalogProduct(StoredResource, NewCatalogProduct):
    """A product of the catalog as the service keeps it.

    Source: spec, "Resources and their fields", Catalog product.
    """


class CatalogProductResponse(Resource):
    """The response of the operations on one product of the catalog.

    Source: spec, "Endpoints", Catalog products.
    """

    catalog_product: CatalogProduct = Field(description="The catalog product.")


class CatalogProductPage(CountedPage):
    """The response of GET /catalogProducts.

    Source: spec, "Endpoints", Catalog products.
    """

    catalog_products: ListOf[CatalogProduct] = Field(description="Catalog products of this page.")


class PlanStatus(StrEnum):
    """The states that are listed."""

    ACTIVE = "Active"


class BillingDate(Resource):
    """The day on which a plan is billed.

    Source: spec, "Resources and their fields", Plan, billingData.
    """

    anchor: StrictStr | None = optional("Anchor from which the billing day is counted.")
    day_of_month: Integer | None = optional("Day of the month, from 1.", 1)


class BillingData(Resource):
    """How a plan is billed.

    Source: spec, "Resources and their fields", Plan, billingData.
    """

    billing_interval: StrictStr | None = optional("Billing interval, such as Monthly.", "Monthly")
    duration: ExactDecimal | None = optional("Contract length; the unit is not stated.", Decimal(12))
    payment_term: StrictStr | None = optional("Payment term.")
    auto_renewal: StrictBool | None = optional("Whether the contract renews automatically.")
    pro_rated: StrictBool | None = optional("Whether partial intervals are pro-rated.")
    billing_date: BillingDate | None = optional("Day of billing.")


class Plan(StoredResource):
    """A plan, which this interface only reads.

    Source: spec, "Resources and their fields", Plan.
    """

    name: ReadText = optional("Name of the plan.", "Growth")
    status: Annotated[Annotated[StrictStr, AfterValidator(OpenEnum(PlanStatus))] | None, READ_ONLY] = (
        optional("State: Active, or another.", "Active")
    )
    billing_data: Annotated[BillingData | None, READ_ONLY] = optional("Billing settings of the plan.")
    external_id: ReadText = optional("Id of the plan in your own system.", "plan-growth")


class PlanResponse(Resource):
    """The response of GET /plans/{planId}.

    Source: spec, "Endpoints", Plans.
    """

    plan: Plan = Field(description="The plan.")
