"""Adding up without losing a digit: Decimal alone rounds to 28."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

from billhook.wire.strict_json import MAX_DIGITS

__all__ = ["EXACT", "MOST", "ZERO", "bounded", "exact_sum", "is_moderate"]

ZERO = Decimal(0)
EXACT = Context(prec=16 * MAX_DIGITS, rounding=ROUND_HALF_EVEN)
"""Loses no digit of sums and products of amounts either, however long the wire lets them be."""
MOST = Decimal(10) ** 100
"""What is rated and granted is no more than this, and no finer than a 10^100th: what comes of it can be
written on the wire, which takes longer numbers than anybody means."""


def exact_sum(values: Iterable[Decimal]) -> Decimal:
    """The sum, with as many digits as a number on the wire may have."""
    with localcontext(prec=MAX_DIGITS):
        return sum(values, ZERO)


def is_moderate(amount: Decimal) -> bool:
    """Is `amount` within MOST, and no finer?"""
    return abs(amount) <= MOST and bounded(amount) == amount


def bounded(amount: Decimal) -> Decimal:
    """`amount`, or the nearest that is within MOST and no finer."""
    with localcontext(EXACT):
        amount = max(-MOST, min(amount, MOST))
        exponent = amount.as_tuple().exponent
        fine = isinstance(exponent, int) and exponent < -MOST.adjusted()
        return amount.quantize(1 / MOST) if fine else amount
