"""The specification's interface, a group of operations for each tag. Source: spec, "Endpoints"."""

from billhook.sandbox.api import access, customers, invoices, usage
from billhook.sandbox.operations import groups_of

__all__ = ["GROUPS"]

GROUPS = groups_of(access, usage, customers, invoices)
"""All operations, in the order of the OpenAPI document."""
