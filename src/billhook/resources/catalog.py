"""The product catalog. Source: spec, "Resources and their fields", Catalog product; "Endpoints"."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources.base import Resource, Stored
from billhook.resources.paging import CountedPage
from billhook.wire.fields import Flag, ListOf, Text

__all__ = [
    "CatalogProduct",
    "CatalogProductPage",
    "CatalogProductResponse",
    "CatalogProductUpdate",
    "NewCatalogProduct",
]


class CatalogProductUpdate(Resource):
    """The request of PUT /catalogProducts/{catalogProductId}: what is given is changed, what is not stays.

    Source: spec, "Endpoints", Catalog products.
    """

    name: Annotated[Text | None, Field(description="Name of the product.", examples=["API calls"])] = None
    description: Annotated[
        Text | None, Field(description="What it is.", examples=["Calls of the public API"])
    ] = None
    product_code: Annotated[Text | None, Field(description="Code of the product.", examples=["API-1"])] = None
    disable_description: Annotated[
        Flag | None, Field(description="Leave the default text out of line items?", examples=[False])
    ] = None
    external_id: Annotated[Text | None, Field(description="Id in your own system.", examples=["sku-100"])] = (
        None
    )


class NewCatalogProduct(CatalogProductUpdate):
    """The request of POST /catalogProducts.

    Source: spec, "Resources and their fields", Catalog product.
    """

    name: Annotated[Text, Field(description="Name of the product.", examples=["API calls"])]


class CatalogProduct(Stored, NewCatalogProduct):
    """A product of the catalog as the service keeps it.

    Source: spec, "Resources and their fields", Catalog product.
    """


class CatalogProductResponse(Resource):
    """The response of the operations on one product of the catalog.

    Source: spec, "Endpoints", Catalog products.
    """

    catalog_product: Annotated[CatalogProduct, Field(description="The product.")]


class CatalogProductPage(CountedPage):
    """The response of GET /catalogProducts.

    Source: spec, "Endpoints", Catalog products.
    """

    catalog_products: Annotated[ListOf[CatalogProduct], Field(description="The products of this page.")]
