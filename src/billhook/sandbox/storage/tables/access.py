"""Who may call, and what the sandbox remembers of itself."""

from __future__ import annotations

from sqlalchemy import Column, LargeBinary, Table, Text

from billhook.sandbox.storage.tables.base import metadata, serial
from billhook.sandbox.storage.types import Instant

__all__ = ["api_token", "setting"]

setting = Table(
    "setting",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""Facts about the sandbox itself: its tables' fingerprint, its clock, its keys."""

api_token = Table(
    "api_token",
    metadata,
    serial(),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("created_at", Instant, nullable=False),
    Column("revoked_at", Instant),
)
"""API tokens, as SHA-256; at most one is not revoked. Source: spec, "Authentication", rules 2 and 3."""
