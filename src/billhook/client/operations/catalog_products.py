"""The product catalog. Source: spec, "Endpoints", Catalog products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.client.paging import Listing
from billhook.resources import (
    CatalogProduct,
    CatalogProductPage,
    CatalogProductResponse,
    CatalogProductUpdate,
    NewCatalogProduct,
    PageQuery,
)

__all__ = ["CREATE", "GET", "LIST", "UPDATE", "CatalogProducts"]

# Not repeatable: a second request would create a second product.
CREATE = ApiOperation("POST", "/catalogProducts", repeatable=False)
LIST = ApiOperation("GET", "/catalogProducts", repeatable=True)
GET = ApiOperation("GET", "/catalogProducts/{catalogProductId}", repeatable=True)
UPDATE = ApiOperation("PUT", "/catalogProducts/{catalogProductId}", repeatable=True)


class CatalogProducts(ApiGroup):
    """The products of the catalog, which contracts sell."""

    def create(self, product: NewCatalogProduct | Mapping[str, Any]) -> CatalogProduct:
        """Create a product. Calls POST /catalogProducts."""
        body = encode_body(NewCatalogProduct, product)
        return self._session.call(CREATE, CatalogProductResponse, body=body).catalog_product

    def list(self, *, limit: int | None = None) -> Listing[CatalogProduct]:
        """List the products, in pages of `limit`. Calls GET /catalogProducts."""
        return self._listing(
            LIST, CatalogProductPage, lambda page: page.catalog_products, PageQuery, limit=limit
        )

    def get(self, catalog_product_id: str) -> CatalogProduct:
        """Get a product. Calls GET /catalogProducts/{catalogProductId}. Raises ResourceNotFound."""
        return self._session.call(GET, CatalogProductResponse, catalog_product_id).catalog_product

    def update(
        self, catalog_product_id: str, product: CatalogProductUpdate | Mapping[str, Any]
    ) -> CatalogProduct:
        """Change the fields of a product that `product` contains; the others stay.

        Calls PUT /catalogProducts/{catalogProductId}. Raises ResourceNotFound.
        """
        body = encode_body(CatalogProductUpdate, product)
        return self._session.call(
            UPDATE, CatalogProductResponse, catalog_product_id, body=body
        ).catalog_product
