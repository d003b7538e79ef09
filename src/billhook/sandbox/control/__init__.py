"""The control API: the operations under /_sandbox, which are not in the specification."""

from billhook.sandbox.control.customers import (
    CLOUD_USAGE_GROUP,
    CONTRACTS_GROUP,
    CUSTOM_FIELDS_GROUP,
    CUSTOMERS_GROUP,
    METERS_GROUP,
    PLANS_GROUP,
)
from billhook.sandbox.control.deliveries import DELIVERIES_GROUP, EVENT_LOG_GROUP, TRIGGER_GROUP
from billhook.sandbox.control.invoices import (
    CREDITS_GROUP,
    EXCHANGE_RATES_GROUP,
    INVOICES_GROUP,
    REPORTS_GROUP,
)
from billhook.sandbox.control.service import CLOCK_GROUP, SECRETS_GROUP, TOKENS_GROUP
from billhook.sandbox.control.subscriptions import FAULTS_GROUP, SUBSCRIPTIONS_GROUP

__all__ = ["GROUPS"]

GROUPS = (
    CUSTOMERS_GROUP,
    CONTRACTS_GROUP,
    INVOICES_GROUP,
    CREDITS_GROUP,
    EXCHANGE_RATES_GROUP,
    PLANS_GROUP,
    CUSTOM_FIELDS_GROUP,
    CLOUD_USAGE_GROUP,
    TOKENS_GROUP,
    METERS_GROUP,
    CLOCK_GROUP,
    REPORTS_GROUP,
    TRIGGER_GROUP,
    EVENT_LOG_GROUP,
    SUBSCRIPTIONS_GROUP,
    DELIVERIES_GROUP,
    FAULTS_GROUP,
    SECRETS_GROUP,
)
"""In the order of the OpenAPI document."""
