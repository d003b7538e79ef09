"""Tables of contracts, invoices, credits and scheduled jobs."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from billhook.sandbox.storage.columns import DecimalText, UtcMicroseconds, document, metadata, serial

__all__ = [
    "agenda",
    "billed_line",
    "carried_forward",
    "contract",
    "cover",
    "credit_charge",
    "credit_lot",
    "credit_pool",
    "credit_product",
    "credit_schedule",
    "invoice",
    "ledger_entry",
    "reached",
    "report",
    "top_up",
]


contract = document(
    "contract",
    Column("customer_id", Text, nullable=False, index=True),
    Column("external_id", Text, index=True),
    Column("status", Text, nullable=False),
    Column("start_at", UtcMicroseconds, nullable=False),
    Column("end_at", UtcMicroseconds),
    Column("deleted_at", UtcMicroseconds),
    Column("in_force_at", UtcMicroseconds),
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
    Column("amount", DecimalText, nullable=False),
    Column("amount_paid", DecimalText, nullable=False),
    Column("usd_rate", DecimalText, nullable=False),
    Column("issued_at", UtcMicroseconds, nullable=False),
    Column("approved_at", UtcMicroseconds),
    Column("due_at", UtcMicroseconds),
    Column("cycle_start", UtcMicroseconds),
    Column("cycle_end", UtcMicroseconds),
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
    Column("cycle_start", UtcMicroseconds, primary_key=True),
    Column("cycle_end", UtcMicroseconds, nullable=False),
    Column("counted_from", UtcMicroseconds, nullable=False),
    Column("customer_id", Text, nullable=False),
    Column("contract_id", Text, nullable=False),
    Column("invoice_id", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("product_id", Text, nullable=False),
    Column("product_name", Text, nullable=False),
    Column("units", DecimalText, nullable=False),
    Column("subtotal", DecimalText, nullable=False),
    Column("discount", DecimalText, nullable=False),
    Column("overage", DecimalText, nullable=False),
    Column("credits_used", DecimalText, nullable=False),
    Column("total", DecimalText, nullable=False),
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
    Column("amount", DecimalText, nullable=False),
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
    Column("due_at", UtcMicroseconds, nullable=False, index=True),
    Column("kind", Text, nullable=False),
    Column("subject_id", Text, nullable=False, index=True),
    sqlite_autoincrement=True,
)
"""What happens when the clock gets there: in the order of `due_at`, then of `seq`. Done with, a row goes."""


credit_product = document("credit_product")

credit_pool = Table(
    "credit_pool",
    metadata,
    serial(),
    Column("id", Text, nullable=False, unique=True),
    Column("customer_id", Text, nullable=False, index=True),
    Column("credit_product_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("balance", DecimalText, nullable=False),
    Column("filled_to", DecimalText, nullable=False),
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
    Column("remaining", DecimalText, nullable=False),
    Column("expires_at", UtcMicroseconds),
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
    Column("amount", DecimalText, nullable=False),
    Column("balance_after", DecimalText, nullable=False),
    Column("invoice_id", Text),
    Column("contract_id", Text),
    Column("created_at", UtcMicroseconds, nullable=False),
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
    Column("starts_at", UtcMicroseconds, nullable=False),
    sqlite_autoincrement=True,
)
"""Grants of contracts that come again; `body` is the CreditGrant, in JSON."""

credit_charge = Table(
    "credit_charge",
    metadata,
    serial(),
    Column("contract_id", Text, nullable=False, index=True),
    Column("granted_at", UtcMicroseconds, nullable=False),
    Column("credit_product_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("amount", DecimalText, nullable=False),
    Column("price", DecimalText, nullable=False),
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
    Column("cycle_start", UtcMicroseconds, primary_key=True),
    Column("units", DecimalText, nullable=False),
    Column("money", DecimalText, nullable=False),
    Column("invoiced_units", DecimalText, nullable=False),
    Column("invoiced_money", DecimalText, nullable=False),
)
"""Usage of a contract's product in a cycle that credits have paid for, and what was left of it to an invoice:
credits that come afterwards are not drawn for that. None of it ever falls."""

reached = Table(
    "reached",
    metadata,
    Column("subject", Text, primary_key=True),
    Column("cycle_start", UtcMicroseconds, nullable=False),
    Column("units", DecimalText, nullable=False),
    Column("money", DecimalText, nullable=False),
)
"""The most that usage stood at in its present cycle, or a pool's use since it was last filled."""
