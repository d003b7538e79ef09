"""How much of a product is used: told by events and by the API alike."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from billhook.wire.fields import Flag, Number, ProductId, ProductName
from billhook.wire.shape import Shape

__all__ = ["ProductConsumptionSnapshot"]


class ProductConsumptionSnapshot(Shape):
    """How much of a product a customer has used, at one moment.

    Source: spec, "Events", CommitmentCrossed; "Resources and their fields", Product consumption.
    """

    product_id: ProductId
    product_name: ProductName
    provisioned_amount: Annotated[Number, Field(description="Units provisioned.", examples=[Decimal(10000)])]
    consumed_amount: Annotated[Number, Field(description="Units used.", examples=[Decimal(8125)])]
    usage_percentage: Annotated[
        Number, Field(description="Units used, in percent.", examples=[Decimal("81.25")])
    ]
    has_access: Annotated[Flag, Field(description="May the customer still use the product?", examples=[True])]
    remaining_amount: Annotated[Number, Field(description="Units left.", examples=[Decimal(1875)])]
