"""Text from outside, made safe for a terminal and for a log.

A delivery must not move the cursor, colour the terminal, turn the reading direction or begin a line of its
own.
"""

from __future__ import annotations

import logging
import unicodedata

__all__ = ["PrintableFormatter", "first_line", "printable"]

# Controls, formats (bidirectional overrides), surrogates, private use, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def printable(text: object, keep: str = "") -> str:
    r"""Text safe for a terminal: invisible characters, but those in `keep`, are escaped, as \x1b."""
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in _UNSAFE
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in str(text)
    )


def first_line(text: str, limit: int = 200) -> str:
    """The first line of a text, safe for a log: at most `limit` characters, and … where that is not all."""
    line = text[: limit + 1].split("\n", 1)[0].rstrip("\r")
    shown = printable(line)
    if len(line) == len(text) and len(shown) <= limit:
        return shown
    return shown[: limit - 1] + "…"


class PrintableFormatter(logging.Formatter):
    """Formats a record as safe text; further lines of one are indented, so that none looks like a record."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's text, as a terminal and a log may show it."""
        return printable(super().format(record), keep="\n\t").replace("\n", "\n    ")
