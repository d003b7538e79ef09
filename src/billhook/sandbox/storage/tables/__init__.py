"""The sandbox's tables, by subject."""

from billhook.sandbox.storage.columns import metadata
from billhook.sandbox.storage.tables import billing, usage, webhooks

__all__ = ["billing", "metadata", "usage", "webhooks"]
