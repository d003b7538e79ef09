"""Exact decimal arithmetic for money and units: Python's default context would round to 28 digits."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

from billhook.wire.strict_json import MAX_DIGITS

__all__ = ["EXACT", "MAX_AMOUNT", "ZERO", "clamp", "exact_sum", "is_in_range"]

ZERO = Decimal(0)
EXACT = Context(prec=16 * MAX_DIGITS, rounding=ROUND_HALF_EVEN)
"""A context for sums and products of amounts that loses no digit, however long the wire lets them be."""
MAX_AMOUNT = Decimal(10) ** 100
"""The largest amount that is rated or granted; the finest is its reciprocal.

The wire takes longer numbers than this. Within these limits every result of a calculation can be written to
the wire.
"""


def exact_sum(values: Iterable[Decimal]) -> Decimal:
    """Return the sum, with as many digits as a number on the wire may have."""
    with localcontext(prec=MAX_DIGITS):
        return sum(values, ZERO)


def is_in_range(amount: Decimal) -> bool:
    """Return whether `amount` is within MAX_AMOUNT, and no finer than its reciprocal."""
    return abs(amount) <= MAX_AMOUNT and clamp(amount) == amount


def clamp(amount: Decimal) -> Decimal:
    """Return `amount`, or the nearest amount that is within MAX_AMOUNT and no finer than its reciprocal."""
    with localcontext(EXACT):
        amount = max(-MAX_AMOUNT, min(amount, MAX_AMOUNT))
        # The exponent of NaN and of infinity is a text; neither can come from the wire.
        exponent = amount.as_tuple().exponent
        fine = isinstance(exponent, int) and exponent < -MAX_AMOUNT.adjusted()
        return amount.quantize(1 / MAX_AMOUNT) if fine else amount
