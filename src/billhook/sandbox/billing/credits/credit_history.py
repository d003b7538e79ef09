"""Pages of credit pools, and the course of a pool's balance, for charts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Row, func, select

from billhook.sandbox.storage.repository import ListPage, fetch_page
from billhook.sandbox.storage.tables.billing import credit_lot, credit_pool, ledger_entry
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["balance_history", "newest_entries", "next_expiries", "pools"]


def pools(tx: Transaction, limit: int, cursor: str | None, customer_id: str | None) -> ListPage[Row[Any]]:
    """Return a page of the credit pools, of one customer or of all, newest first."""
    query = select(credit_pool).where(*_of_customer(credit_pool.c.customer_id, customer_id))
    order = [credit_pool.c.seq]
    return fetch_page(tx.connection, query, order, limit, cursor, credit_pool.name, newest_first=True)


def balance_history(tx: Transaction, pool: Row[Any], most: int) -> list[tuple[datetime, Decimal]]:
    """Return (moment, balance after it) of the last `most` ledger entries of a pool, oldest first."""
    of = ledger_entry.c
    # By the customer as well: the index of ledgers begins with it.
    where = of.customer_id == pool.customer_id, of.pool_id == pool.id
    query = select(of.created_at, of.balance_after).where(*where)
    rows = tx.connection.execute(query.order_by(of.seq.desc()).limit(most)).all()
    return [(at, balance) for at, balance in reversed(rows)]


def newest_entries(
    tx: Transaction, limit: int, cursor: str | None, customer_id: str | None
) -> ListPage[Row[Any]]:
    """Return a page of ledger entries with kind and credit product of their pool, newest first."""
    query = (
        select(ledger_entry, credit_pool.c.kind, credit_pool.c.credit_product_id)
        .join(credit_pool, credit_pool.c.id == ledger_entry.c.pool_id)
        .where(*_of_customer(ledger_entry.c.customer_id, customer_id))
    )
    order = [ledger_entry.c.seq]
    return fetch_page(tx.connection, query, order, limit, cursor, ledger_entry.name, newest_first=True)


def next_expiries(tx: Transaction, pool_ids: Sequence[str]) -> dict[str, datetime]:
    """Return when the first credits of each pool expire; a pool whose credits never do is left out."""
    of = credit_lot.c
    query = (
        select(of.pool_id, func.min(of.expires_at))
        .where(of.pool_id.in_(pool_ids), of.expires_at.is_not(None))
        .group_by(of.pool_id)
    )
    return {row[0]: row[1] for row in tx.connection.execute(query)}


def _of_customer(column: ColumnElement[str], customer_id: str | None) -> list[ColumnElement[bool]]:
    return [] if customer_id is None else [column == customer_id]
