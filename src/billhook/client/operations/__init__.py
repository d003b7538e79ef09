"""The operations of the API, in the groups of the specification. Source: spec, "Endpoints"."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from billhook.client.auth import LOGIN
from billhook.client.operation import ApiOperation
from billhook.client.operations import (
    catalog_products,
    cloud_usage,
    contracts,
    credits,  # noqa: A004 - the group's name in the specification
    custom_fields,
    customers,
    events,
    invoices,
    measurements,
    plans,
    webhooks,
)

__all__ = ["IMPLIED", "OPERATIONS"]

OPERATIONS: Mapping[str, ApiOperation] = MappingProxyType(
    {
        "auth.login": LOGIN,
        "events.query": events.QUERY,
        "events.submit_v1": events.SUBMIT_V1,
        "events.submit": events.SUBMIT,
        "events.dry_run": events.DRY_RUN,
        "events.aggregate": events.AGGREGATE,
        "measurements.create": measurements.CREATE,
        "customers.update": customers.UPDATE,
        "customers.get_by_integration": customers.BY_INTEGRATION,
        "customers.products_consumptions": customers.CONSUMPTIONS,
        "customers.products_consumptions_by_alias": customers.CONSUMPTIONS_BY_ALIAS,
        "contracts.create": contracts.CREATE,
        "contracts.list": contracts.LIST,
        "contracts.delete": contracts.DELETE,
        "plans.get": plans.GET,
        "catalog_products.create": catalog_products.CREATE,
        "catalog_products.list": catalog_products.LIST,
        "catalog_products.get": catalog_products.GET,
        "catalog_products.update": catalog_products.UPDATE,
        "invoices.list": invoices.LIST,
        "invoices.get": invoices.GET,
        "credits.list": credits.LIST,
        "credits.deduct": credits.DEDUCT,
        "credits.top_up": credits.TOP_UP,
        "custom_fields.list": custom_fields.LIST,
        "custom_fields.get": custom_fields.GET,
        "cloud_usage.submit": cloud_usage.SUBMIT,
        "webhooks.subscribe": webhooks.SUBSCRIBE,
    }
)
"""Every operation by the method of BillingClient that calls it, in the specification's order."""

IMPLIED: Mapping[str, ApiOperation] = MappingProxyType({"contracts.get": contracts.GET})
"""Operations that the specification implies without showing an endpoint, by the same names."""
