"""The product catalog, and plans.

Source: spec, "Resources and their fields", Catalog product; Plan; "Endpoints".
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictStr

from billhook.fields.types import ExactDecimal, Integer, ListOf, open_enum
from billhook.resources.base import READ_ONLY, CountedPage, Resource, StoredResource


class CatalogProductUpdate(Resource):
    """The request of PUT /catalogProducts/{catalogProductId}: what is given is changed, what is not stays.

    Source: spec, "Endpoints", Catalog products.
    """

    name: Annotated[StrictStr | None, Field(description="Name of the product.", examples=["API calls"])] = (
        None
    )
    description: Annotated[
        StrictStr | None, Field(description="Type of product.", examples=["Calls of the public API"])
    ] = None
    product_code: Annotated[StrictStr | None, Field(description="Product code.", examples=["API-1"])] = None
    disable_description: Annotated[
        StrictBool | None,
        Field(description="Whether the default description is left out of line items.", examples=[False]),
    ] = None
    external_id: Annotated[
        StrictStr | None, Field(description="Id of the product in your own system.", examples=["sku-100"])
    ] = None


class NewCatalogProduct(CatalogProductUpdate):
    """The request of POST /catalogProducts.

    Source: spec, "Resources and their fields", Catalog product.
    """

    name: Annotated[StrictStr, Field(description="Name of the product.", examples=["API calls"])]


class CatalogProduct(StoredResource, NewCatalogProduct):
    """A product of the catalog as the service keeps it.

    Source: spec, "Resources and their fields", Catalog product.
    """


class CatalogProductResponse(Resource):
    """The response of the operations on one product of the catalog.

    Source: spec, "Endpoints", Catalog products.
    """

    catalog_product: Annotated[CatalogProduct, Field(description="The catalog product.")]


class CatalogProductPage(CountedPage):
    """The response of GET /catalogProducts.

    Source: spec, "Endpoints", Catalog products.
    """

    catalog_products: Annotated[ListOf[CatalogProduct], Field(description="Catalog products of this page.")]


class PlanStatus(StrEnum):
    """The states that are listed."""

    ACTIVE = "Active"


class BillingDate(Resource):
    """The day on which a plan is billed.

    Source: spec, "Resources and their fields", Plan, billingData.
    """

    anchor: Annotated[
        StrictStr | None, Field(description="Anchor from which the billing day is counted.")
    ] = None
    day_of_month: Annotated[Integer | None, Field(description="Day of the month, from 1.", examples=[1])] = (
        None
    )


class BillingData(Resource):
    """How a plan is billed.

    Source: spec, "Resources and their fields", Plan, billingData.
    """

    billing_interval: Annotated[
        StrictStr | None, Field(description="Billing interval, such as Monthly.", examples=["Monthly"])
    ] = None
    duration: Annotated[
        ExactDecimal | None,
        Field(description="Contract length; the unit is not stated.", examples=[Decimal(12)]),
    ] = None
    payment_term: Annotated[StrictStr | None, Field(description="Payment term.")] = None
    auto_renewal: Annotated[
        StrictBool | None, Field(description="Whether the contract renews automatically.")
    ] = None
    pro_rated: Annotated[StrictBool | None, Field(description="Whether partial intervals are pro-rated.")] = (
        None
    )
    billing_date: Annotated[BillingDate | None, Field(description="Day of billing.")] = None


class Plan(StoredResource):
    """A plan, which this interface only reads.

    Source: spec, "Resources and their fields", Plan.
    """

    name: Annotated[
        StrictStr | None, READ_ONLY, Field(description="Name of the plan.", examples=["Growth"])
    ] = None
    status: Annotated[
        Annotated[StrictStr, AfterValidator(open_enum(PlanStatus))] | None,
        READ_ONLY,
        Field(description="State: Active, or another.", examples=["Active"]),
    ] = None
    billing_data: Annotated[
        BillingData | None, READ_ONLY, Field(description="Billing settings of the plan.")
    ] = None
    external_id: Annotated[
        StrictStr | None,
        READ_ONLY,
        Field(description="Id of the plan in your own system.", examples=["plan-growth"]),
    ] = None


class PlanResponse(Resource):
    """The response of GET /plans/{planId}.

    Source: spec, "Endpoints", Plans.
    """

    plan: Annotated[Plan, Field(description="The plan.")]
