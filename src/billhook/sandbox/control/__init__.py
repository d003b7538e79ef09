"""The control API: the operations under /_sandbox, which are not in the specification."""

from billhook.sandbox.control import customers, deliveries, invoices, service, subscriptions
from billhook.sandbox.operations import groups_of

__all__ = ["GROUPS"]

GROUPS = groups_of(customers, invoices, service, deliveries, subscriptions)
"""All operations, in the order of the OpenAPI document."""
