"""Credit pools and their ledger: every change of a balance is made here, by one function.

Source: spec, "Resources and their fields", Credit ledger entry; "Events", the three on credit pools.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, insert, select, update

from billhook.sandbox.billing.credit_announcements import Pool, announce_fall, announce_rise
from billhook.sandbox.billing.exact import EXACT, ZERO
from billhook.sandbox.storage.bulk import among
from billhook.sandbox.storage.tables.credit import credit_lot, credit_pool, ledger_entry
from billhook.sandbox.transaction import Transaction, new_id

__all__ = ["EXPIRY", "Link", "Pool", "drain", "fill", "lots", "pools_of", "take"]

EXPIRY = "Expiry"
"""The type of the ledger's entry for credits that were not used in time."""


@dataclass(frozen=True, slots=True)
class Link:
    """What an entry of the ledger belongs to."""

    contract_id: str | None = None
    invoice_id: str | None = None


def pools_of(tx: Transaction, customer_id: str, credit_product_ids: Collection[str]) -> list[Pool]:
    """The customer's pools of these credit products, in their order."""
    if not credit_product_ids:
        return []
    rows = tx.connection.execute(
        select(credit_pool)
        .where(
            credit_pool.c.customer_id == customer_id,
            among(tx.connection, credit_pool.c.credit_product_id, credit_product_ids),
        )
        .order_by(credit_pool.c.seq)
    )
    order = {product_id: n for n, product_id in reversed(list(enumerate(credit_product_ids)))}
    return sorted(map(_pool, rows), key=lambda pool: order[pool.credit_product_id])


def fill(
    tx: Transaction,
    pool_key: tuple[str, str, str],
    amount: Decimal,
    link: Link,
    *,
    expires_at: datetime | None,
    automatic: bool,
) -> tuple[str, str]:
    """Add credits to the pool of (customer id, credit product id, kind); ids of the lot and of the entry.

    The pool is made if it is not there. Raises CreditPoolIncreased.
    """
    pool = _find_or_make(tx, *pool_key)
    lot_id = new_id("lot")
    tx.connection.execute(
        insert(credit_lot).values(
            id=lot_id, pool_id=pool.id, remaining=amount, expires_at=expires_at, automatic=automatic
        )
    )
    return lot_id, _enter(tx, pool, "Grant", amount, link)


def lots(tx: Transaction, *where: ColumnElement[bool]) -> list[Row[Any]]:
    """Credits that are left, those that expire first foremost: rows of `credit_lot`."""
    expires_at = credit_lot.c.expires_at
    found = tx.connection.execute(
        select(credit_lot)
        .join(credit_pool, credit_pool.c.id == credit_lot.c.pool_id)
        .where(*where)
        .order_by(expires_at.is_(None), expires_at, credit_lot.c.seq)
    )
    return list(found.all())


def drain(tx: Transaction, pool: Pool, amount: Decimal, link: Link) -> Decimal:
    """Draw up to `amount` for usage, from credits that are used by themselves; how much there was."""
    if amount <= 0 or pool.balance <= 0:
        return ZERO
    there = lots(tx, credit_lot.c.pool_id == pool.id, credit_lot.c.automatic.is_(True))
    with localcontext(EXACT):
        return sum(take(tx, there, amount, "Usage", link).values(), ZERO)


def take(
    tx: Transaction, there: Collection[Row[Any]], amount: Decimal, entry_type: str, link: Link
) -> dict[str, Decimal]:
    """Take up to `amount` of these lots, in their order; what was taken, by the pool's id.

    One entry for each pool. Raises CreditPoolThresholdCrossed and CreditPoolDepleted.
    """
    taken: dict[str, Decimal] = {}
    with localcontext(EXACT):
        left = amount
        for lot in there:
            part = min(left, lot.remaining)
            if part <= 0:
                break
            left -= part
            taken[lot.pool_id] = taken.get(lot.pool_id, ZERO) + part
            this = credit_lot.c.id == lot.id
            if part == lot.remaining:
                tx.connection.execute(delete(credit_lot).where(this))
            else:
                tx.connection.execute(update(credit_lot).where(this).values(remaining=lot.remaining - part))
        for pool_id, part in taken.items():
            row = tx.connection.execute(select(credit_pool).where(credit_pool.c.id == pool_id)).one()
            _enter(tx, _pool(row), entry_type, -part, link)
    return taken


def _enter(tx: Transaction, pool: Pool, entry_type: str, amount: Decimal, link: Link) -> str:
    """Change a balance: the pool, its ledger and its events, together. Gives the entry's id."""
    entry_id = new_id("cle")
    with localcontext(EXACT):
        balance = pool.balance + amount
        filled_to = pool.filled_to
        if amount > 0:
            filled_to = balance
        elif entry_type == EXPIRY:  # what is lost was not used: the used share is of what could be
            filled_to += amount
    changed = replace(pool, balance=balance, filled_to=filled_to)
    tx.connection.execute(
        update(credit_pool)
        .where(credit_pool.c.id == pool.id)
        .values(balance=balance, filled_to=changed.filled_to)
    )
    tx.connection.execute(
        insert(ledger_entry).values(
            id=entry_id, customer_id=pool.customer_id, pool_id=pool.id, type=entry_type, amount=amount,
            balance_after=balance, invoice_id=link.invoice_id, contract_id=link.contract_id,
            created_at=tx.now,
        )
    )  # fmt: skip
    if amount > 0:
        announce_rise(tx, pool, changed, amount)
    else:
        announce_fall(tx, pool, changed, by_use=entry_type != EXPIRY)
    return entry_id


def _find_or_make(tx: Transaction, customer_id: str, credit_product_id: str, kind: str) -> Pool:
    columns = {"customer_id": customer_id, "credit_product_id": credit_product_id, "kind": kind}
    found = tx.connection.execute(select(credit_pool).filter_by(**columns)).first()
    if found is not None:
        return _pool(found)
    pool = Pool(new_id("pool"), customer_id, credit_product_id, kind, ZERO, ZERO)
    tx.connection.execute(insert(credit_pool).values(id=pool.id, **columns, balance=ZERO, filled_to=ZERO))
    return pool


def _pool(row: Row[Any]) -> Pool:
    return Pool(row.id, row.customer_id, row.credit_product_id, row.kind, row.balance, row.filled_to)
