"""The specification's interface, a group of operations for each tag. Source: spec, "Endpoints"."""

from billhook.sandbox.api.access import AUTH_GROUP, WEBHOOKS_GROUP
from billhook.sandbox.api.customers import (
    CATALOG_PRODUCTS_GROUP,
    CONSUMPTIONS_GROUP,
    CONTRACTS_GROUP,
    CUSTOM_FIELDS_GROUP,
    CUSTOMERS_GROUP,
    PLANS_GROUP,
)
from billhook.sandbox.api.invoices import CREDITS_GROUP, INVOICES_GROUP
from billhook.sandbox.api.usage import CLOUD_USAGE_GROUP, EVENTS_GROUP, MEASUREMENTS_GROUP

__all__ = ["GROUPS"]

GROUPS = (
    AUTH_GROUP,
    EVENTS_GROUP,
    MEASUREMENTS_GROUP,
    CUSTOMERS_GROUP,
    CONSUMPTIONS_GROUP,
    CONTRACTS_GROUP,
    PLANS_GROUP,
    CATALOG_PRODUCTS_GROUP,
    INVOICES_GROUP,
    CREDITS_GROUP,
    CUSTOM_FIELDS_GROUP,
    CLOUD_USAGE_GROUP,
    WEBHOOKS_GROUP,
)
"""In the order of the specification."""
