"""All the groups of operations, in the order of the specification; then the sandbox's own."""

from __future__ import annotations

from billhook.sandbox.web.own import (
    clock,
    deliveries,
    exchange_rates,
    faults,
    raised,
    reports,
    secrets,
    subscriptions,
    tokens,
    trigger,
)
from billhook.sandbox.web.own import cloud_usage as own_cloud_usage
from billhook.sandbox.web.own import contracts as own_contracts
from billhook.sandbox.web.own import credits as own_credits
from billhook.sandbox.web.own import custom_fields as own_custom_fields
from billhook.sandbox.web.own import customers as own_customers
from billhook.sandbox.web.own import invoices as own_invoices
from billhook.sandbox.web.own import meters as own_meters
from billhook.sandbox.web.own import plans as own_plans
from billhook.sandbox.web.spec import (
    auth,
    catalog_products,
    cloud_usage,
    consumptions,
    contracts,
    custom_fields,
    customers,
    events,
    invoices,
    measurements,
    plans,
    webhooks,
)
from billhook.sandbox.web.spec import credits as spec_credits

__all__ = ["GROUPS"]

GROUPS = (
    auth.GROUP,
    events.GROUP,
    measurements.GROUP,
    customers.GROUP,
    consumptions.GROUP,
    contracts.GROUP,
    plans.GROUP,
    catalog_products.GROUP,
    invoices.GROUP,
    spec_credits.GROUP,
    custom_fields.GROUP,
    cloud_usage.GROUP,
    webhooks.GROUP,
    own_customers.GROUP,
    own_contracts.GROUP,
    own_invoices.GROUP,
    own_credits.GROUP,
    exchange_rates.GROUP,
    own_plans.GROUP,
    own_custom_fields.GROUP,
    own_cloud_usage.GROUP,
    tokens.GROUP,
    own_meters.GROUP,
    clock.GROUP,
    reports.GROUP,
    trigger.GROUP,
    raised.GROUP,
    subscriptions.GROUP,
    deliveries.GROUP,
    faults.GROUP,
    secrets.GROUP,
)
