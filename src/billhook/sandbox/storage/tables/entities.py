"""What is managed: customers, plans, products, fields, and what was told to marketplaces."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Table, Text, UniqueConstraint

from billhook.sandbox.storage.tables.base import document, metadata

__all__ = [
    "alias",
    "catalog_product",
    "cloud_usage",
    "custom_field",
    "customer",
    "customer_integration",
    "plan",
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
