"""Products that contracts may sell. Source: spec, "Endpoints", Catalog products."""

from __future__ import annotations

from billhook.resources import (
    CatalogProductPage,
    CatalogProductResponse,
    CatalogProductUpdate,
    NewCatalogProduct,
    PageQuery,
)
from billhook.sandbox.billing.catalog import PRODUCTS
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.documents import as_sent
from billhook.sandbox.storage.keys import check_key
from billhook.sandbox.storage.tables.entities import catalog_product
from billhook.sandbox.transaction import Transaction
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("contracts", prefix="/catalogProducts", name="catalogProducts")


@GROUP.operation("POST", "", takes=NewCatalogProduct, gives=CatalogProductResponse)
def create(call: Call[NewCatalogProduct]) -> CatalogProductResponse:
    """Create a product."""
    given = call.given
    _check_name(given)
    _check_external_id(call.tx, given.external_id)
    data = as_sent(given)
    product = PRODUCTS.add(call.tx, data, external_id=given.external_id)
    return CatalogProductResponse(catalog_product=product)


@GROUP.operation("GET", "", takes=PageQuery, gives=CatalogProductPage)
def list_all(call: Call[PageQuery]) -> CatalogProductPage:
    """List the products, oldest first."""
    page = PRODUCTS.page(call.tx, limit_of(call.given), call.given.cursor)
    return CatalogProductPage(catalog_products=page.items, **page.fields())


@GROUP.operation("GET", "/{catalogProductId}", gives=CatalogProductResponse)
def get(call: Call[None]) -> CatalogProductResponse:
    """Get a product."""
    return CatalogProductResponse(catalog_product=PRODUCTS.get(call.tx, call.path["catalogProductId"]))


@GROUP.operation("PUT", "/{catalogProductId}", takes=CatalogProductUpdate, gives=CatalogProductResponse)
def update(call: Call[CatalogProductUpdate]) -> CatalogProductResponse:
    """Change the fields that are given; a null clears its field."""
    product = PRODUCTS.get(call.tx, call.path["catalogProductId"])
    given = call.given
    changes = as_sent(given)
    _check_name(given)
    columns = {}
    if "external_id" in given.model_fields_set and given.external_id != product.external_id:
        _check_external_id(call.tx, given.external_id)
        columns["external_id"] = given.external_id
    product = PRODUCTS.change(call.tx, product, changes, **columns)
    return CatalogProductResponse(catalog_product=product)


def _check_name(given: CatalogProductUpdate) -> None:
    if "name" in given.model_fields_set and not (given.name or "").strip():
        raise invalid_request("a product has a name: give one that is not empty", "name")


def _check_external_id(tx: Transaction, external_id: str | None) -> None:
    if external_id is None:
        return
    check_key(external_id, "externalId")
    if PRODUCTS.first(tx, catalog_product.c.external_id == external_id):
        raise invalid_request(
            "another catalog product has this externalId", "externalId", code="already_exists"
        )
