"""The product catalog. Source: spec, "Resources and their fields", Catalog product; "Endpoints"."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictStr

from billhook.resources.base import Resource, StoredResource
from billhook.resources.paging import CountedPage
from billhook.wire.fields import ListOf

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
