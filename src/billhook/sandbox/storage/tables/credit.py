"""Credits and what they were drawn for, and how far usage had come when that was announced."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, Table, Text

from billhook.sandbox.storage.tables.base import document, metadata, serial
from billhook.sandbox.storage.types import Amount, Instant

__all__ = [
    "cover",
    "credit_charge",
    "credit_lot",
    "credit_pool",
    "credit_product",
    "credit_schedule",
    "ledger_entry",
    "reached",
    "top_up",
]

credit_product = document("credit_product")

credit_pool = Table(
    "credit_pool",
    metadata,
    serial(),
    Column("id", Text, nullable=False, unique=True),
    Column("customer_id", Text, nullable=False, index=True),
    Column("credit_product_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("balance", Amount, nullable=False),
    Column("filled_to", Amount, nullable=False),
    Index("credit_pool_of", "customer_id", "credit_product_id", "kind", unique=True),
    sqlite_autoincrement=True,
)
"""One for each customer, credit product and kind. `filled_to` is the balance after the last grant: what
the used share is told of."""

credit_lot = Table(
    "credit_lot",
    metadata,
    serial(),
    Column("id", Text, nullable=False, unique=True),
    Column("pool_id", Text, ForeignKey("credit_pool.id"), nullable=False, index=True),
    Column("remaining", Amount, nullable=False),
    Column("expires_at", Instant),
    Column("automatic", Boolean, nullable=False),
    sqlite_autoincrement=True,
)
"""What is left of each grant: used up, a row goes. A pool's balance is the sum of its lots.
`automatic`: usage draws it by itself."""

ledger_entry = Table(
    "ledger_entry",
    metadata,
    serial(),
    Column("id", Text, nullable=False, unique=True),
    Column("customer_id", Text, nullable=False),
    Column("pool_id", Text, ForeignKey("credit_pool.id"), nullable=False),
    Column("type", Text, nullable=False),
    Column("amount", Amount, nullable=False),
    Column("balance_after", Amount, nullable=False),
    Column("invoice_id", Text),
    Column("contract_id", Text),
    Column("created_at", Instant, nullable=False),
    Index("ledger_entry_of", "customer_id", "seq"),
    sqlite_autoincrement=True,
)
"""Every change of a pool. `amount` is below zero where the balance falls."""

credit_schedule = Table(
    "credit_schedule",
    metadata,
    serial(),
    Column("id", Text, nullable=False, unique=True),
    Column("contract_id", Text, nullable=False, index=True),
    Column("customer_id", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("starts_at", Instant, nullable=False),
    sqlite_autoincrement=True,
)
"""Grants of contracts that come again; `body` is the CreditGrant, in JSON."""

credit_charge = Table(
    "credit_charge",
    metadata,
    serial(),
    Column("contract_id", Text, nullable=False, index=True),
    Column("granted_at", Instant, nullable=False),
    Column("credit_product_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("amount", Amount, nullable=False),
    Column("price", Amount, nullable=False),
    sqlite_autoincrement=True,
)
"""What is charged for the grants of contracts: on the invoice of the cycle in which they were made."""

top_up = Table(
    "top_up",
    metadata,
    Column("invoice_id", Text, primary_key=True),
    Column("customer_id", Text, nullable=False),
    Column("body", Text, nullable=False),
)
"""Grants that wait for the approval of their invoice; granted, a row goes."""

cover = Table(
    "cover",
    metadata,
    Column("subject", Text, primary_key=True),
    Column("cycle_start", Instant, primary_key=True),
    Column("units", Amount, nullable=False),
    Column("money", Amount, nullable=False),
    Column("invoiced_units", Amount, nullable=False),
    Column("invoiced_money", Amount, nullable=False),
)
"""Usage of a contract's product in a cycle that credits have paid for, and what was left of it to an invoice:
credits that come afterwards are not drawn for that. None of it ever falls."""

reached = Table(
    "reached",
    metadata,
    Column("subject", Text, primary_key=True),
    Column("cycle_start", Instant, nullable=False),
    Column("units", Amount, nullable=False),
    Column("money", Amount, nullable=False),
)
"""The most that usage stood at in its present cycle, or a pool's use since it was last filled."""
