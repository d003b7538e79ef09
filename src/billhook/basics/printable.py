"""Escape untrusted text for terminals and logs; take from a text what differs between two customers.

A delivery must not be able to move the cursor, colour the terminal, change the reading direction or forge a
log line.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from typing import Any

TRACEBACK_LIMIT = 16_000
IDENTIFIER_CHARACTERS = 100
"""How long an identifying value gets, which is stored in an index; a longer one is cut."""

HEADER_RULE = "must be printable ASCII without spaces, and not empty"
_EXCEPTION_CHARACTERS = 2_000
# Controls, formats (bidirectional overrides), surrogates, private use, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def printable(text: object, keep: str = "") -> str:
    r"""Escape invisible characters, except those in `keep`, as in \x1b."""
    shown = str(text)
    if shown.isprintable():  # true for most texts, and for none of the characters below
        return shown
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in _UNSAFE
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in shown
    )


def first_line(text: str, limit: int = 200) -> str:
    """Return the first line, escaped and cut to `limit` characters; … marks a cut."""
    line = text[: limit + 1].split("\n", 1)[0].rstrip("\r")
    shown = printable(line)
    if len(line) == len(text) and len(shown) <= limit:
        return shown
    return shown[: limit - 1] + "…"


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: `1 delivery`, `2,000 deliveries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def exception_text(error: BaseException) -> str:
    """Return the class of an exception and its text, if it has any: its own code may raise in turn."""
    kind: str = type.__dict__["__name__"].__get__(type(error))  # not what a metaclass says
    try:
        text = str(error)[:_EXCEPTION_CHARACTERS]
    except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
        text = "<exception str() failed>"  # as in a traceback
    return f"{kind}: {text}" if text.strip() else kind


class PrintableFormatter(logging.Formatter):
    """Escape records; continuation lines are indented, so that none looks like a record.

    Of a long traceback it keeps the end, where the line that raised is.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text, escaped."""
        # Escaped and indented below, once, also if another formatter has done it.
        record.exc_text = None
        return printable(super().format(record), keep="\n\t").replace("\n", "\n    ")

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the end of the traceback, at most 16,000 characters."""
        text = super().formatException(ei)
        return text if len(text) <= TRACEBACK_LIMIT else "…" + text[1 - TRACEBACK_LIMIT :]


_TITLE_LIMIT = 200
_TEXT_LIMIT = 500
# What differs between two customers: quoted texts, addresses, and words with a digit in them.
_VARIABLE = re.compile(
    r"""(?<!\w)'(?:[^'\\]|\\.)*'
        | "(?:[^"\\]|\\.)*"
        | [^\s@]+@[^\s@]+
        | [^\s:;,()\[\]=]*\d[^\s:;,()\[\]=]*""",
    re.VERBOSE,
)


def error_title(text: str) -> str:
    """Return an error, as `S3Error: cus_1 is gone`, without ids; the name of its class is none."""
    name, colon, message = text.split("\n", 1)[0].partition(":")
    if not colon or not name.isidentifier():
        return without_ids(text)
    return f"{name}{colon} {without_ids(message)}".strip()[:_TITLE_LIMIT]


def without_ids(text: str) -> str:
    """Return the first line of a text with `…` for ids, numbers, addresses and quoted texts."""
    return _VARIABLE.sub("…", text.split("\n", 1)[0][:_TEXT_LIMIT])[:_TITLE_LIMIT].strip()


def fits_header(value: str) -> bool:
    """Return whether HEADER_RULE is kept: HTTP libraries refuse other texts, and repeat them in errors."""
    return re.fullmatch(r"[!-~]+", value) is not None
