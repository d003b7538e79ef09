"""Amounts that are carried forward: an invoice below zero is one for nothing, and makes the next one less.

The specification does not say what becomes of it.
"""

from __future__ import annotations

from decimal import Decimal, localcontext

from sqlalchemy import delete, insert, select

from billhook.sandbox.billing.exact import EXACT, ZERO
from billhook.sandbox.billing.rating import Charge
from billhook.sandbox.storage.tables.billing import carried_forward
from billhook.sandbox.transaction import Transaction

__all__ = ["BROUGHT", "CARRIED", "add", "line", "take"]

BROUGHT = "Carried forward from an earlier invoice"
"""The name of the line by which an invoice is less, or more if an earlier one was written anew meanwhile."""
CARRIED = "Carried forward to the next invoice"
"""The name of the line by which an invoice is no less than zero."""


def take(tx: Transaction, contract_id: str, currency: str) -> Decimal:
    """What is carried forward to the contract's next invoice, once."""
    amount = _amount(tx, contract_id, currency)
    if amount:
        _forget(tx, contract_id, currency)
    return amount


def add(tx: Transaction, contract_id: str, currency: str, amount: Decimal) -> None:
    """Carry so much more forward."""
    if amount:
        with localcontext(EXACT):
            whole = _amount(tx, contract_id, currency) + amount
        _forget(tx, contract_id, currency)
        values = {"contract_id": contract_id, "currency": currency, "amount": whole}
        tx.connection.execute(insert(carried_forward).values(**values))


def line(name: str, amount: Decimal) -> Charge:
    """A line of an invoice that is for no product."""
    nothing = amount * 0
    return Charge(
        product_id="",
        product_name=name,
        units=ZERO,
        subtotal=amount,
        discount=nothing,
        overage=nothing,
        credits_used=nothing,
        total=amount,
    )


def _amount(tx: Transaction, contract_id: str, currency: str) -> Decimal:
    carried = carried_forward.c
    kept = select(carried.amount).where(carried.contract_id == contract_id, carried.currency == currency)
    return tx.connection.execute(kept).scalar() or ZERO


def _forget(tx: Transaction, contract_id: str, currency: str) -> None:
    carried = carried_forward.c
    tx.connection.execute(
        delete(carried_forward).where(carried.contract_id == contract_id, carried.currency == currency)
    )
