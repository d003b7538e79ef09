"""Amounts of forms, and filters of templates: exact amounts, and texts no longer than their place."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

__all__ = ["clipped", "format_amount", "format_percent", "parse_number", "with_texts"]

_CHARACTERS = 40
"""An amount that is longer is shown with an exponent."""


def format_amount(number: Decimal | None, like: Decimal | None = None) -> str:
    """Return `12,345.60`, with as many decimal places as `like` has if it has more; empty for None."""
    if number is None:
        return ""
    places = max(_places(number), 0 if like is None else _places(like))
    text = f"{number:,.{places}f}" if places < _CHARACTERS else f"{number:,f}"
    return text if len(text) <= _CHARACTERS else f"{number:.12E}"


def _places(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) and exponent < 0 else 0


def format_percent(number: Decimal | None) -> str:
    """Return `12.5 %`, with one decimal place at most; empty for None."""
    return "" if number is None else f"{float(number):,.1f}".removesuffix(".0") + " %"


def clipped(text: object, most: int) -> str:
    """Return the text, or its first `most` characters and an ellipsis."""
    whole = str(text)
    return whole if len(whole) <= most else whole[:most] + "…"


def with_texts(values: Iterable[str]) -> list[tuple[str, str]]:
    """Return each value with itself as its text: the options of a choice."""
    return [(value, value) for value in values]


def parse_number(text: str) -> Decimal | None:
    """Return the number in the field of a form; None for what is none, or is not finite."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
