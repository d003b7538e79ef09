"""The operations of the API, in the groups of the specification. Source: spec, "Endpoints"."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from billhook.client.operation import ApiOperation
from billhook.client.operations import access, contracts, customers, invoices, usage
from billhook.client.session import LOGIN

__all__ = ["IMPLIED", "OPERATIONS"]

OPERATIONS: Mapping[str, ApiOperation] = MappingProxyType(
    {
        "auth.login": LOGIN,
        "events.query": usage.QUERY,
        "events.submit_v1": usage.SUBMIT_V1,
        "events.submit": usage.SUBMIT,
        "events.dry_run": usage.DRY_RUN,
        "events.aggregate": usage.AGGREGATE,
        "measurements.create": usage.CREATE_MEASUREMENT,
        "customers.update": customers.UPDATE_CUSTOMER,
        "customers.get_by_integration": customers.BY_INTEGRATION,
        "customers.products_consumptions": customers.CONSUMPTIONS,
        "customers.products_consumptions_by_alias": customers.CONSUMPTIONS_BY_ALIAS,
        "contracts.create": contracts.CREATE_CONTRACT,
        "contracts.list": contracts.LIST_CONTRACTS,
        "contracts.delete": contracts.DELETE_CONTRACT,
        "plans.get": contracts.GET_PLAN,
        "catalog_products.create": contracts.CREATE_PRODUCT,
        "catalog_products.list": contracts.LIST_PRODUCTS,
        "catalog_products.get": contracts.GET_PRODUCT,
        "catalog_products.update": contracts.UPDATE_PRODUCT,
        "invoices.list": invoices.LIST_INVOICES,
        "invoices.get": invoices.GET_INVOICE,
        "credits.list": invoices.LIST_CREDITS,
        "credits.deduct": invoices.DEDUCT,
        "credits.top_up": invoices.TOP_UP,
        "custom_fields.list": customers.LIST_FIELDS,
        "custom_fields.get": customers.GET_FIELD,
        "cloud_usage.submit": usage.SUBMIT_CLOUD_USAGE,
        "webhooks.subscribe": access.SUBSCRIBE,
    }
)
"""Every operation by the method of BillingClient that calls it, in the specification's order."""

IMPLIED: Mapping[str, ApiOperation] = MappingProxyType({"contracts.get": contracts.GET_CONTRACT})
"""Operations that the specification implies without showing an endpoint, by the same names."""
