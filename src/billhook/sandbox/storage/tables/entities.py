"""Tables of customers, plans, products and custom fields; API tokens and settings."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, LargeBinary, Table, Text, UniqueConstraint

from billhook.sandbox.storage.columns import UtcMicroseconds, document, metadata, serial

__all__ = [
    "alias",
    "api_token",
    "catalog_product",
    "cloud_usage",
    "custom_field",
    "customer",
    "customer_integration",
    "plan",
    "setting",
]


customer = document(
    "customer",
    Column("external_id", Text, unique=True),
    Column("anonymous", Boolean, nullable=False, default=False),
    Column("inactive", Boolean, nullable=False, default=False),
)
"""`anonymous`: made up for usage under a name that nobody had, and not changed since; `inactive`: its status
is Inactive."""

alias = Table(
    "alias",
    metadata,
    Column("alias", Text, primary_key=True),
    Column("customer_id", Text, ForeignKey("customer.id"), nullable=False, index=True),
)
"""Names that usage may come under: each belongs to one customer; its id and external id are among them."""

customer_integration = Table(
    "customer_integration",
    metadata,
    Column("type", Text, primary_key=True),
    Column("external_id", Text, primary_key=True),
    Column("customer_id", Text, ForeignKey("customer.id"), nullable=False, index=True),
)
"""Counterparts at other providers: each is linked to one customer."""

plan = document("plan", Column("external_id", Text, unique=True), Column("products", Text, nullable=False))
"""`products`: what the plan sells, as a contract's products, in JSON."""

catalog_product = document("catalog_product", Column("external_id", Text, unique=True))

custom_field = document(
    "custom_field",
    Column("entity", Text, nullable=False),
    Column("name", Text, nullable=False),
    UniqueConstraint("entity", "name"),
)
"""Definitions; `name` is customFieldName."""

cloud_usage = document("cloud_usage", Column("idempotency_key", Text, unique=True))
"""Results of submissions to marketplaces."""


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
    Column("created_at", UtcMicroseconds, nullable=False),
    Column("revoked_at", UtcMicroseconds),
)
"""API tokens, as SHA-256; at most one is not revoked. Source: spec, "Authentication", rules 2 and 3."""
