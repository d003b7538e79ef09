"""Contracts, plans and the product catalog.

Source: spec, "Endpoints", Contracts: there is no operation that fetches one; Plans; Catalog products.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billhook.client.operation import ApiOperation, Listing
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.resources import (
    CatalogProduct,
    CatalogProductPage,
    CatalogProductResponse,
    CatalogProductUpdate,
    Contract,
    ContractPage,
    ContractQuery,
    ContractResponse,
    NewCatalogProduct,
    NewContract,
    PageQuery,
    Plan,
    PlanResponse,
)

__all__ = [
    "CREATE_CONTRACT",
    "CREATE_PRODUCT",
    "DELETE_CONTRACT",
    "GET_CONTRACT",
    "GET_PLAN",
    "GET_PRODUCT",
    "LIST_CONTRACTS",
    "LIST_PRODUCTS",
    "UPDATE_PRODUCT",
    "CatalogProducts",
    "Contracts",
    "Plans",
]

CREATE_CONTRACT = ApiOperation("POST", "/contracts", repeatable=False)
LIST_CONTRACTS = ApiOperation("GET", "/contracts", repeatable=True)
# Implied by the specification, which shows neither its request nor its response.
GET_CONTRACT = ApiOperation("GET", "/contracts/{contractId}", repeatable=True)
# A second DELETE would be answered "no such contract", as if the first had done nothing.
DELETE_CONTRACT = ApiOperation("DELETE", "/contracts/{contractId}", repeatable=False)
# Not repeatable: a second request would create a second product.
CREATE_PRODUCT = ApiOperation("POST", "/catalogProducts", repeatable=False)
LIST_PRODUCTS = ApiOperation("GET", "/catalogProducts", repeatable=True)
GET_PRODUCT = ApiOperation("GET", "/catalogProducts/{catalogProductId}", repeatable=True)
UPDATE_PRODUCT = ApiOperation("PUT", "/catalogProducts/{catalogProductId}", repeatable=True)
GET_PLAN = ApiOperation("GET", "/plans/{planId}", repeatable=True)


class Contracts(ApiGroup):
    """Contracts of customers."""

    def create(self, contract: NewContract | Mapping[str, Any]) -> Contract:
        """Create a contract. Calls POST /contracts.

        Raises RuleBroken for a planId together with products, and for neither a plan nor a name.
        """
        return self._session.call(
            CREATE_CONTRACT, ContractResponse, body=encode_body(NewContract, contract)
        ).contract

    def list(
        self,
        *,
        customer_id: str | None = None,
        customer_external_id: str | None = None,
        limit: int | None = None,
    ) -> Listing[Contract]:
        """List the contracts, of one customer or all, in pages of `limit`. Calls GET /contracts.

        Raises RuleBroken if both a customer id and an external id are given.
        """
        return self._listing(
            LIST_CONTRACTS,
            ContractPage,
            lambda page: page.contracts,
            ContractQuery,
            customer_id=customer_id,
            customer_external_id=customer_external_id,
            limit=limit,
        )

    def get(self, contract_id: str) -> Contract:
        """Get the contract with this id or externalId. Calls GET /contracts/{contractId}.

        The specification implies the operation ("Fetching one contract") without showing it; the response is
        parsed like those of the other operations on one contract. Raises ResourceNotFound.
        """
        return self._session.call(GET_CONTRACT, ContractResponse, contract_id).contract

    def delete(self, contract_id: str) -> Contract:
        """Delete the contract with this id or externalId. Calls DELETE /contracts/{contractId}.

        Raises ResourceNotFound.
        """
        return self._session.call(DELETE_CONTRACT, ContractResponse, contract_id).contract


class CatalogProducts(ApiGroup):
    """The products of the catalog, which contracts sell."""

    def create(self, product: NewCatalogProduct | Mapping[str, Any]) -> CatalogProduct:
        """Create a product. Calls POST /catalogProducts."""
        body = encode_body(NewCatalogProduct, product)
        return self._session.call(CREATE_PRODUCT, CatalogProductResponse, body=body).catalog_product

    def list(self, *, limit: int | None = None) -> Listing[CatalogProduct]:
        """List the products, in pages of `limit`. Calls GET /catalogProducts."""
        return self._listing(
            LIST_PRODUCTS, CatalogProductPage, lambda page: page.catalog_products, PageQuery, limit=limit
        )

    def get(self, catalog_product_id: str) -> CatalogProduct:
        """Get a product. Calls GET /catalogProducts/{catalogProductId}. Raises ResourceNotFound."""
        return self._session.call(GET_PRODUCT, CatalogProductResponse, catalog_product_id).catalog_product

    def update(
        self, catalog_product_id: str, product: CatalogProductUpdate | Mapping[str, Any]
    ) -> CatalogProduct:
        """Change the fields of a product that `product` contains; the others stay.

        Calls PUT /catalogProducts/{catalogProductId}. Raises ResourceNotFound.
        """
        body = encode_body(CatalogProductUpdate, product)
        return self._session.call(
            UPDATE_PRODUCT, CatalogProductResponse, catalog_product_id, body=body
        ).catalog_product


class Plans(ApiGroup):
    """Plans that contracts may use."""

    def get(self, plan_id: str) -> Plan:
        """Get a plan. Calls GET /plans/{planId}. Raises ResourceNotFound."""
        return self._session.call(GET_PLAN, PlanResponse, plan_id).plan
