"""What is announced of credit pools. Source: spec, "Events", the three on credit pools."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

from billhook.events import CreditPoolDepleted, CreditPoolIncreased, CreditPoolThresholdCrossed
from billhook.sandbox.billing.crossings import marks_passed, percent, watches
from billhook.sandbox.billing.exact import EXACT
from billhook.sandbox.transaction import Transaction

__all__ = ["Pool", "announce_fall", "announce_rise"]


@dataclass(frozen=True, slots=True)
class Pool:
    """A customer's credits of one credit product and one kind, as they stand."""

    id: str
    customer_id: str
    credit_product_id: str
    kind: str
    balance: Decimal
    filled_to: Decimal
    """The balance after the last grant."""


def announce_rise(tx: Transaction, before: Pool, after: Pool, amount: Decimal) -> None:
    """Raise CreditPoolIncreased."""
    told = _as_told(tx, after)
    tx.raise_event(CreditPoolIncreased(**told, granted_amount=amount, previous_balance=before.balance))


def announce_fall(tx: Transaction, before: Pool, after: Pool, *, by_use: bool) -> None:
    """Raise what a fall passes: CreditPoolThresholdCrossed if it is `by_use`, and CreditPoolDepleted.

    A balance rises by a grant only, and then the count begins anew: no fall passes a mark twice. Thresholds
    are of usage: credits that expire pass none.
    """
    told = _as_told(tx, after)
    with localcontext(EXACT):
        was, used = (after.filled_to - each.balance for each in (before, after))
    share = percent(used, after.filled_to)
    waiting = watches(tx, CreditPoolThresholdCrossed.type)
    for threshold, only in marks_passed(waiting, after.filled_to, was, used) if by_use else ():
        event = CreditPoolThresholdCrossed(**told, threshold=threshold, pct_usage=share)
        tx.raise_event(event, only=only)
    if after.balance == 0:
        tx.raise_event(CreditPoolDepleted(**told))


def _as_told(tx: Transaction, pool: Pool) -> dict[str, Any]:
    return {
        "date": tx.now,
        "customer_id": pool.customer_id,
        "credit_pool_id": pool.id,
        "credit_type_id": pool.credit_product_id,
        "credit_kind": pool.kind,
        "balance": pool.balance,
    }
