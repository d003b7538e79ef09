"""What is owed and granted, and what falls due."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, Table, Text, UniqueConstraint

from billhook.sandbox.storage.tables.base import document, metadata, serial
from billhook.sandbox.storage.types import Amount, Instant

__all__ = ["agenda", "billed_line", "carried_forward", "contract", "invoice", "report"]

contract = document(
    "contract",
    Column("customer_id", Text, nullable=False, index=True),
    Column("external_id", Text, index=True),
    Column("status", Text, nullable=False),
    Column("start_at", Instant, nullable=False),
    Column("end_at", Instant),
    Column("deleted_at", Instant),
    Column("in_force_at", Instant),
)
"""A deleted one stays, with `deleted_at`: its external id is free for another. `in_force_at`: its start, or
when it was made or activated if that was later; null while it is in review."""

invoice = document(
    "invoice",
    Column("customer_id", Text, nullable=False),
    Column("contract_id", Text),
    Column("kind", Text, nullable=False),
    Column("billing_status", Text, nullable=False),
    Column("currency", Text, nullable=False),
    Column("amount", Amount, nullable=False),
    Column("amount_paid", Amount, nullable=False),
    Column("usd_rate", Amount, nullable=False),
    Column("issued_at", Instant, nullable=False),
    Column("approved_at", Instant),
    Column("due_at", Instant),
    Column("cycle_start", Instant),
    Column("cycle_end", Instant),
    Column("year", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    UniqueConstraint("year", "number"),
    Index("invoice_customer", "customer_id", "billing_status"),
    Index("invoice_issued", "issued_at"),
)
"""`kind` is cycle (of a contract, from `cycle_start` to `cycle_end`) or topup (of credits). `number` counts
the invoices of a `year`. `usd_rate`: US dollars for one unit of `currency` when it was issued."""

billed_line = Table(
    "billed_line",
    metadata,
    Column("key", Text, primary_key=True),
    Column("cycle_start", Instant, primary_key=True),
    Column("cycle_end", Instant, nullable=False),
    Column("counted_from", Instant, nullable=False),
    Column("customer_id", Text, nullable=False),
    Column("contract_id", Text, nullable=False),
    Column("invoice_id", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("product_id", Text, nullable=False),
    Column("product_name", Text, nullable=False),
    Column("units", Amount, nullable=False),
    Column("subtotal", Amount, nullable=False),
    Column("discount", Amount, nullable=False),
    Column("overage", Amount, nullable=False),
    Column("credits_used", Amount, nullable=False),
    Column("total", Amount, nullable=False),
    Column("exceeded", Boolean, nullable=False),
    Column("late", Boolean, nullable=False),
    Index("billed_line_customer", "customer_id", "cycle_end"),
    Index("billed_line_late", "late", "contract_id"),
)
"""What was billed so far for the usage of a contract's line in a cycle, whose own charge is the line
`position` of the invoice. `counted_from`: from when on usage decides about it; `late`: there was some since
the invoice was approved, which is not billed yet."""

carried_forward = Table(
    "carried_forward",
    metadata,
    Column("contract_id", Text, primary_key=True),
    Column("currency", Text, primary_key=True),
    Column("amount", Amount, nullable=False),
)
"""What invoices below zero have left to the next one of their contract: it is that much less."""

report = Table(
    "report",
    metadata,
    serial(),
    Column("id", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),
    sqlite_autoincrement=True,
)
"""What the end of a month found, as JSON."""

agenda = Table(
    "agenda",
    metadata,
    serial(),
    Column("due_at", Instant, nullable=False, index=True),
    Column("kind", Text, nullable=False),
    Column("subject_id", Text, nullable=False, index=True),
    sqlite_autoincrement=True,
)
"""What happens when the clock gets there: in the order of `due_at`, then of `seq`. Done with, a row goes."""
