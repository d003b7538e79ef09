"""How pages show text, times and numbers. Text may come from outside, so nothing in it is invisible."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from markupsafe import Markup, escape

from billhook.printable import printable

__all__ = [
    "as_shown",
    "format_bytes",
    "format_number",
    "format_time",
    "show_invisible",
    "time_element",
]

_KEPT = "\n\t"
_LONG = 1e15
"""Fractional numbers from here on are written with an exponent."""


def as_shown(value: Any) -> Any:
    r"""Return what an expression in a template is shown as: text with invisible characters as \u202e.

    For Jinja's `finalize`, so that no template can forget it. Markup and numbers stay as they are.
    """
    if value is None:
        return ""
    if hasattr(value, "__html__"):
        return value
    return printable(value, keep=_KEPT) if isinstance(value, str) else value


def show_invisible(text: object) -> Markup:
    r"""Return text from outside as HTML: isolated from the reading direction of what surrounds it.

    Each character that could not be seen is written as \x1b in an element of its own, so that it cannot be
    mistaken for a backslash that was sent.
    """
    shown = Markup("").join(
        escape("".join(characters))
        if visible
        else Markup('<span class="invisible">{}</span>').format(printable("".join(characters)))
        for visible, characters in groupby(str(text), _is_visible)
    )
    return Markup("<bdi>{}</bdi>").format(shown)


def _is_visible(character: str) -> bool:
    return character in _KEPT or printable(character) == character


def format_time(moment: datetime | None) -> str:
    """Return a time in UTC as `2026-11-23 03:40:12`; empty for None."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def time_element(moment: datetime | None) -> Markup:
    """Return a time in UTC as a <time> element; empty for None."""
    if moment is None:
        return Markup("")
    exact = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, format_time(moment))


def format_number(number: float) -> str:
    """Return a number with its digits in groups of three: `1,234,567`, with at most two decimal places."""
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:,.2f}".rstrip("0").rstrip(".") if abs(number) < _LONG else f"{number:.3g}"


def format_bytes(number: int) -> str:
    """Return a size as `12 bytes`, `3.4 KB` or `1.2 MB`, of 1,000 each."""
    for size, unit in ((1_000_000, "MB"), (1_000, "KB")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return "1 byte" if number == 1 else f"{number} bytes"
