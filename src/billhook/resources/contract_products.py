"""What a contract sells. Source: spec, "Resources and their fields", ContractProduct and ProductGroup."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from billhook.resources.base import Resource
from billhook.resources.integrations import ProductCloudSettings, ProductIntegration
from billhook.wire.fields import Flag, FromOne, Integer, MaybeListOf, Number, Text

__all__ = ["Commitment", "ContractProduct", "Discount", "Duration", "Pricing", "ProductGroup", "Scheduling"]


class Duration(Resource):
    """So many of a unit of time.

    Source: spec, "Resources and their fields", ContractProduct, scheduling.
    """

    unit: Annotated[Text | None, Field(description="The unit.", examples=["Months"])] = None
    value: Annotated[Number | None, Field(description="How many.", examples=[Decimal(1)])] = None


class Scheduling(Resource):
    """When something is billed.

    Source: spec, "Resources and their fields", ContractProduct, scheduling.
    """

    billing_day: Annotated[FromOne | None, Field(description="The day of billing, from 1.", examples=[1])] = (
        None
    )
    duration: Annotated[Duration | None, Field(description="How often, or how long.")] = None


class Discount(Resource):
    """What is taken off a price.

    Source: spec, "Resources and their fields", ContractProduct, pricing.
    """

    name: Annotated[Text | None, Field(description="Name of the discount.", examples=["Launch"])] = None
    type: Annotated[Text | None, Field(description="Kind of discount.")] = None
    amount: Annotated[Number | None, Field(description="How much.", examples=[Decimal("10.00")])] = None
    recurring: Annotated[Integer | None, Field(description="How many times.", examples=[3])] = None


class Pricing(Resource):
    """What a product costs.

    Source: spec, "Resources and their fields", ContractProduct, pricing.
    """

    type: Annotated[Text | None, Field(description="Kind of price.")] = None
    price: Annotated[Number | None, Field(description="The price.", examples=[Decimal("0.0125")])] = None
    discount: Annotated[Discount | None, Field(description="What is taken off.")] = None
    is_credit_purchase: Annotated[Flag | None, Field(description="Does it buy credits?")] = None
    issued_separately: Annotated[Flag | None, Field(description="Is it on an invoice of its own?")] = None


class Commitment(Resource):
    """What a customer has promised to use.

    Source: spec, "Resources and their fields", Commitment.
    """

    units: Annotated[Number | None, Field(description="Units promised.", examples=[Decimal(10000)])] = None
    price: Annotated[Number | None, Field(description="Price of them.", examples=[Decimal("99.00")])] = None
    type: Annotated[Text | None, Field(description="Kind of commitment.")] = None
    scheduling: Annotated[Scheduling | None, Field(description="When it is billed.")] = None
    overage_strategy: Annotated[Text | None, Field(description="What happens to usage beyond it.")] = None


class _Line(Resource, register=False):
    """What a product and a group of them have in common: each is one line item."""

    display_name: Annotated[
        Text | None, Field(description="Name on the line item.", examples=["API calls"])
    ] = None
    description: Annotated[Text | None, Field(description="Text on the line item.")] = None
    product_erp_id: Annotated[Text | None, Field(description="The product's id in the ERP system.")] = None
    erp_class: Annotated[Text | None, Field(description="Class in the ERP system.")] = None
    erp_class_id: Annotated[Text | None, Field(description="Id of the class in the ERP system.")] = None
    commitment: Annotated[Commitment | None, Field(description="What the customer has promised.")] = None
    is_calendar_aligned: Annotated[
        Flag | None, Field(description="Is it billed by the periods of the calendar?")
    ] = None


class ContractProduct(_Line):
    """A product of a contract.

    Source: spec, "Resources and their fields", ContractProduct.
    """

    disable_description: Annotated[Flag | None, Field(description="Leave the text out?")] = None
    scheduling: Annotated[Scheduling | None, Field(description="When it is billed.")] = None
    pricing: Annotated[Pricing | None, Field(description="What it costs.")] = None
    catalog_product_id: Annotated[
        Text | None, Field(description="Id of the product in the catalog.", examples=["cat_31"])
    ] = None
    external_integrations: Annotated[
        MaybeListOf[ProductIntegration], Field(description="Counterparts at other providers.")
    ] = None
    payment_term: Annotated[Text | None, Field(description="When payment is due.")] = None
    cloud_provider_settings: Annotated[
        ProductCloudSettings | None, Field(description="The product in a cloud's marketplace.")
    ] = None
    consumes_credit_product_ids: Annotated[
        MaybeListOf[Text],
        Field(description="Ids of the credit products whose credits it draws down.", examples=[["crp_2"]]),
    ] = None


class ProductGroup(_Line):
    """Products as one line item.

    Source: spec, "Resources and their fields", ProductGroup.
    """

    products: Annotated[MaybeListOf[ContractProduct], Field(description="The products.")] = None
    base_amount: Annotated[
        Number | None, Field(description="Amount of the group itself.", examples=[Decimal("49.00")])
    ] = None
