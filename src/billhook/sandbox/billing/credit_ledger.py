"""Reading the credit ledger. Source: spec, "Resources and their fields", Credit ledger entry."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Row, select

from billhook.resources import CreditLedgerEntry, CreditLedgerPage
from billhook.sandbox.billing.credit_pools import EXPIRY
from billhook.sandbox.own_fields import own
from billhook.sandbox.storage.paging import page_of
from billhook.sandbox.storage.tables.credit import credit_pool, ledger_entry
from billhook.sandbox.transaction import Transaction
from billhook.wire.fields import ListOf, Text

__all__ = ["ShownLedgerEntry", "ShownLedgerPage", "entry", "page"]


class ShownLedgerEntry(CreditLedgerEntry, register=False):
    """An entry, and whose balance it is: without that nobody could tell."""

    credit_pool_id: Annotated[Text, own("Id of the pool.", examples=["pool_4f0e"])]
    credit_product_id: Annotated[Text, own("Id of its credit product.", examples=["crp_2"])]


class ShownLedgerPage(CreditLedgerPage, register=False):
    """A page of them."""

    entries: Annotated[ListOf[ShownLedgerEntry], Field(description="The entries of this page.")]  # type: ignore[assignment]


_NOTED = ("Deduction", EXPIRY)
"""Entries that have a credit note: credits that went without usage."""

_READ = select(ledger_entry, credit_pool.c.credit_product_id).join(
    credit_pool, credit_pool.c.id == ledger_entry.c.pool_id
)


def page(tx: Transaction, customer_id: str, limit: int, cursor: str | None) -> ShownLedgerPage:
    """A page of a customer's entries, oldest first."""
    query = _READ.where(ledger_entry.c.customer_id == customer_id)
    found = page_of(tx.connection, query, [ledger_entry.c.seq], limit, cursor, ledger_entry.name)
    return ShownLedgerPage(entries=found.of(_entry).items, **found.fields())


def entry(tx: Transaction, entry_id: str) -> ShownLedgerEntry:
    """The entry with this id, which must be there."""
    return _entry(tx.connection.execute(_READ.where(ledger_entry.c.id == entry_id)).one())


def _entry(row: Row[Any]) -> ShownLedgerEntry:
    told: dict[str, Any] = {
        "id": row.id,
        "created_at": row.created_at,
        "type": row.type,
        "amount": row.amount,
        "balance_after_entry": row.balance_after,
        "invoice_id": row.invoice_id,
        "contract_id": row.contract_id,
        "credit_pool_id": row.pool_id,
        "credit_product_id": row.credit_product_id,
    }
    if row.type in _NOTED:
        told["credit_note_number"] = f"CN-{row.created_at.year}-{row.seq:04}"
    given = {name: value for name, value in told.items() if value is not None}
    return ShownLedgerEntry(**given, erp_id=None, integration_entities=[])  # no other system is connected
