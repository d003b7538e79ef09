"""The sandbox's tables, by what they are about."""

from billhook.sandbox.storage.tables import access, billing, credit, entities, sending, usage
from billhook.sandbox.storage.tables.base import metadata

__all__ = ["access", "billing", "credit", "entities", "metadata", "sending", "usage"]
