"""Customers, their consumption, custom fields; contracts, plans and catalog products.

Source: spec, "Endpoints", Customers; Custom fields; Contracts; Plans; Catalog products.
"""

from __future__ import annotations

from typing import Self

from pydantic import ConfigDict
from sqlalchemy import ColumnElement, select

from billhook.resources import (
    CatalogProductPage,
    CatalogProductResponse,
    CatalogProductUpdate,
    ContractPage,
    ContractQuery,
    ContractResponse,
    Customer,
    CustomerResponse,
    CustomerUpdate,
    CustomFieldPage,
    CustomFieldResponse,
    NewCatalogProduct,
    NewContract,
    PageQuery,
    PlanResponse,
    ProductConsumptionsResponse,
)
from billhook.sandbox.billing import anonymous_customers, contract_lifecycle, customers, metered_items
from billhook.sandbox.billing.contracts import contracts
from billhook.sandbox.billing.contracts.contracts import CATALOG_PRODUCTS, PLANS
from billhook.sandbox.billing.custom_fields import DEFINITIONS
from billhook.sandbox.billing.customers import customer_views
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.storage.repository import request_document
from billhook.sandbox.storage.tables.billing import contract, customer

CUSTOMERS_GROUP = OperationGroup("customers", prefix="/customers")
CONSUMPTIONS_GROUP = OperationGroup(
    "customers", prefix="/customers/products-consumptions", name="consumptions"
)
CUSTOM_FIELDS_GROUP = OperationGroup("customers", prefix="/customFields", name="customFields")
CONTRACTS_GROUP = OperationGroup("contracts", prefix="/contracts")
PLANS_GROUP = OperationGroup("contracts", prefix="/plans", name="plans")
CATALOG_PRODUCTS_GROUP = OperationGroup("contracts", prefix="/catalogProducts", name="catalogProducts")


@CUSTOMERS_GROUP.operation(
    "PUT", "/{customerId}", name="update", takes=CustomerUpdate, gives=CustomerResponse
)
def update_customer(call: Call[CustomerUpdate]) -> CustomerResponse:
    """Change the fields that are given; a null clears its field."""
    stored = customers.find(call.tx, call.path["customerId"])
    # A new alias may be the name of an anonymous customer, which is merged then.
    changed = anonymous_customers.update_customer(call.tx, stored, call.request)
    return CustomerResponse(customer=customer_views(call.tx, [changed])[0])


@CUSTOMERS_GROUP.operation("GET", "/integration/{integrationType}/{integrationId}", gives=CustomerResponse)
def get_by_integration(call: Call[None]) -> CustomerResponse:
    """Get the customer that is linked to an external entity."""
    found = customers.find_by_integration(call.tx, call.path["integrationType"], call.path["integrationId"])
    return CustomerResponse(customer=customer_views(call.tx, [found])[0])


@CONSUMPTIONS_GROUP.operation("GET", "/{customerId}", name="by_id", gives=ProductConsumptionsResponse)
def consumption_by_id(call: Call[None]) -> ProductConsumptionsResponse:
    """Get a customer's consumption of each product in the current billing cycle."""
    return _consumption(call, customers.find(call.tx, call.path["customerId"]))


@CONSUMPTIONS_GROUP.operation("GET", "/alias/{alias}", name="by_alias", gives=ProductConsumptionsResponse)
def consumption_by_alias(call: Call[None]) -> ProductConsumptionsResponse:
    """Get the consumption of the customer with this alias in the current billing cycle."""
    return _consumption(call, customers.find_by_alias(call.tx, call.path["alias"]))


def _consumption(call: Call[None], customer: Customer) -> ProductConsumptionsResponse:
    used = metered_items.customer_consumption(call.tx, customer.id)
    return ProductConsumptionsResponse(products_consumptions=used)


@CUSTOM_FIELDS_GROUP.operation("GET", "", name="list_all", takes=PageQuery, gives=CustomFieldPage)
def list_custom_fields(call: Call[PageQuery]) -> CustomFieldPage:
    """List the definitions, oldest first."""
    page = DEFINITIONS.page(call.tx, call.request)
    return CustomFieldPage(custom_fields=page.items, **page.fields())


@CUSTOM_FIELDS_GROUP.operation("GET", "/{customFieldId}", name="get", gives=CustomFieldResponse)
def get_custom_field(call: Call[None]) -> CustomFieldResponse:
    """Get a definition."""
    return CustomFieldResponse(custom_field=DEFINITIONS.get(call.tx, call.path["customFieldId"]))


class SentContract(NewContract, register=False):
    """The body of POST /contracts as the service reads it: with a planId, products are ignored.

    The client refuses both together: the specification calls them mutually exclusive. Source: spec, Contract.
    """

    model_config = ConfigDict(title="NewContract")

    @classmethod
    def from_wire(cls, data: object) -> Self:
        """Read a NewContract, dropping the fields that the plan replaces, even invalid ones."""
        if isinstance(data, dict) and data.get("planId"):
            data = {name: value for name, value in data.items() if name not in _OF_NO_PLAN}
        return super().from_wire(data)


# A planId replaces them: the service ignores them, so an invalid one must not be refused.
_OF_NO_PLAN = ("products", "productGroups")


@CONTRACTS_GROUP.operation("POST", "", name="create", takes=SentContract, gives=ContractResponse)
def create_contract(call: Call[SentContract]) -> ContractResponse:
    """Create a contract from a plan or from products; with a planId, products are ignored."""
    made = contract_lifecycle.create(call.tx, call.request)
    return ContractResponse(contract=contracts.views(call.tx, [made])[0])


@CONTRACTS_GROUP.operation("GET", "", name="list_all", takes=ContractQuery, gives=ContractPage)
def list_contracts(call: Call[ContractQuery]) -> ContractPage:
    """List the contracts, oldest first, without deleted ones."""
    request = call.request
    # Deleted contracts remain in the table: invoices and late usage refer to them.
    where: list[ColumnElement[bool]] = [contract.c.deleted_at.is_(None)]
    if request.customer_id is not None:
        where.append(contract.c.customer_id == request.customer_id)
    if request.customer_external_id is not None:
        # An unknown externalId gives null, so the page is empty, as for an unknown customerId.
        owner = customer.c.external_id == request.customer_external_id
        where.append(contract.c.customer_id == select(customer.c.id).where(owner).scalar_subquery())
    page = contracts.CONTRACTS.page(call.tx, request, *where)
    return ContractPage(contracts=contracts.views(call.tx, page.items), **page.fields())


@CONTRACTS_GROUP.operation("GET", "/{contractId}", name="get", gives=ContractResponse)
def get_contract(call: Call[None]) -> ContractResponse:
    """Get the contract with this id or externalId. The specification mentions it without a description."""
    found = contracts.find(call.tx, call.path["contractId"])
    return ContractResponse(contract=contracts.views(call.tx, [found])[0])


@CONTRACTS_GROUP.operation("DELETE", "/{contractId}", name="delete", gives=ContractResponse)
def delete_contract(call: Call[None]) -> ContractResponse:
    """Delete the contract with this id or externalId."""
    deleted = contract_lifecycle.delete(call.tx, contracts.find(call.tx, call.path["contractId"]))
    return ContractResponse(contract=contracts.views(call.tx, [deleted])[0])


@PLANS_GROUP.operation("GET", "/{planId}", name="get", gives=PlanResponse)
def get_plan(call: Call[None]) -> PlanResponse:
    """Get a plan."""
    return PlanResponse(plan=PLANS.get(call.tx, call.path["planId"]))


@CATALOG_PRODUCTS_GROUP.operation(
    "POST", "", name="create", takes=NewCatalogProduct, gives=CatalogProductResponse
)
def create_product(call: Call[NewCatalogProduct]) -> CatalogProductResponse:
    """Create a product."""
    request = call.request
    _check_product_name(request)
    CATALOG_PRODUCTS.check_external_id(call.tx, request.external_id)
    product = CATALOG_PRODUCTS.add(call.tx, request_document(request))
    return CatalogProductResponse(catalog_product=product)


@CATALOG_PRODUCTS_GROUP.operation("GET", "", name="list_all", takes=PageQuery, gives=CatalogProductPage)
def list_products(call: Call[PageQuery]) -> CatalogProductPage:
    """List the products, oldest first."""
    page = CATALOG_PRODUCTS.page(call.tx, call.request)
    return CatalogProductPage(catalog_products=page.items, **page.fields())


@CATALOG_PRODUCTS_GROUP.operation("GET", "/{catalogProductId}", name="get", gives=CatalogProductResponse)
def get_product(call: Call[None]) -> CatalogProductResponse:
    """Get a product."""
    return CatalogProductResponse(
        catalog_product=CATALOG_PRODUCTS.get(call.tx, call.path["catalogProductId"])
    )


@CATALOG_PRODUCTS_GROUP.operation(
    "PUT", "/{catalogProductId}", name="update", takes=CatalogProductUpdate, gives=CatalogProductResponse
)
def update_product(call: Call[CatalogProductUpdate]) -> CatalogProductResponse:
    """Change the fields that are given; a null clears its field."""
    product = CATALOG_PRODUCTS.get(call.tx, call.path["catalogProductId"])
    request = call.request
    _check_product_name(request)
    # An unchanged externalId is not checked: the product itself would have it already.
    if request.external_id != product.external_id:
        CATALOG_PRODUCTS.check_external_id(call.tx, request.external_id)
    product = CATALOG_PRODUCTS.change(call.tx, product, request_document(request))
    return CatalogProductResponse(catalog_product=product)


def _check_product_name(request: CatalogProductUpdate) -> None:
    # In an update a name that is left out stays; one that is null or blank would be lost.
    if "name" in request.model_fields_set and not (request.name or "").strip():
        raise invalid_request("a product has a name: give one that is not empty", "name")
