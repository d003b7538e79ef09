"""How much of their products customers have used. Source: spec, "Resources and their fields"."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources.base import Resource
from billhook.wire.consumption import ProductConsumptionSnapshot
from billhook.wire.fields import ExceededAmount, ListOf

__all__ = ["ProductConsumption", "ProductConsumptionsResponse"]


class ProductConsumption(ProductConsumptionSnapshot, Resource):
    """How much of a product a customer has used.

    Source: spec, "Resources and their fields", Product consumption.
    """

    exceeded_amount: ExceededAmount


class ProductConsumptionsResponse(Resource):
    """The response of GET /customers/products-consumptions/{customerId}, and of the same by alias.

    Source: spec, "Endpoints", Customers.
    """

    products_consumptions: Annotated[
        ListOf[ProductConsumption], Field(description="The customer's products.")
    ]
