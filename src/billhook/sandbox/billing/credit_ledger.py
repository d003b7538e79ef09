"""Reading the credit ledger. Source: spec, "Resources and their fields", Credit ledger entry."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, select

from billhook.resources import CreditLedgerEntry, CreditLedgerPage
from billhook.sandbox.storage.paging import page_of
from billhook.sandbox.storage.tables.credit import credit_pool, ledger_entry
from billhook.sandbox.transaction import Transaction

__all__ = ["entry", "page"]

_READ = select(ledger_entry, credit_pool.c.credit_product_id).join(
    credit_pool, credit_pool.c.id == ledger_entry.c.pool_id
)


def page(tx: Transaction, customer_id: str, limit: int, cursor: str | None) -> CreditLedgerPage:
    """A page of a customer's entries, oldest first."""
    query = _READ.where(ledger_entry.c.customer_id == customer_id)
    found = page_of(tx.connection, query, [ledger_entry.c.seq], limit, cursor, ledger_entry.name)
    return CreditLedgerPage(entries=found.of(_entry).items, **found.fields())


def entry(tx: Transaction, entry_id: str) -> CreditLedgerEntry:
    """The entry with this id, which must be there."""
    return _entry(tx.connection.execute(_READ.where(ledger_entry.c.id == entry_id)).one())


def _entry(row: Row[Any]) -> CreditLedgerEntry:
    told: dict[str, Any] = {
        "id": row.id,
        "created_at": row.created_at,
        "type": row.type,
        "amount": row.amount,
        "balance_after_entry": row.balance_after,
        "invoice_id": row.invoice_id,
        "contract_id": row.contract_id,
        # No fields of the specification: without them nobody could tell whose balance it is.
        "creditPoolId": row.pool_id,
        "creditProductId": row.credit_product_id,
    }
    return CreditLedgerEntry(**{name: value for name, value in told.items() if value is not None})
