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
"""Customers. `anonymous` is true if usage under an unknown alias created the customer, and no request has
changed it since. `inactive` is true if its status is Inactive."""

alias = Table(
    "alias",
    metadata,
    # The primary key: a name cannot belong to two customers, even if a request does not check it.
    Column("alias", Text, primary_key=True),
    Column("customer_id", Text, ForeignKey("customer.id"), nullable=False, index=True),
)
"""The names by which usage refers to customers, each of one customer: aliases, external id and id."""

customer_integration = Table(
    "customer_integration",
    metadata,
    Column("type", Text, primary_key=True),
    Column("external_id", Text, primary_key=True),
    Column("customer_id", Text, ForeignKey("customer.id"), nullable=False, index=True),
)
"""Entities of other providers, each linked to one customer."""

plan = document("plan", Column("external_id", Text, unique=True), Column("products", Text, nullable=False))
"""Plans. `products` are the products that the plan sells, as JSON; the API's Plan does not show them."""

catalog_product = document("catalog_product", Column("external_id", Text, unique=True))

custom_field = document(
    "custom_field",
    Column("entity", Text, nullable=False),
    Column("name", Text, nullable=False),
    # A customer and a contract may have fields of the same name.
    UniqueConstraint("entity", "name"),
)
"""Definitions of custom fields; `name` is customFieldName."""

cloud_usage = document("cloud_usage", Column("idempotency_key", Text, unique=True))
"""Results of submissions to marketplaces."""


setting = Table(
    "setting",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""Values of the sandbox itself: the fingerprint of its tables, the offset of its clock, its keys."""

api_token = Table(
    "api_token",
    metadata,
    serial(),
    # A copy of the database must not be enough to log in.
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("created_at", UtcMicroseconds, nullable=False),
    Column("revoked_at", UtcMicroseconds),
)
"""API tokens, as SHA-256; at most one is not revoked. Source: spec, "Authentication", rules 2 and 3."""
