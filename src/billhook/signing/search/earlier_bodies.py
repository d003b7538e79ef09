"""Generate the bodies that a proxy may have changed into the one that came."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations, product
from typing import Final

MAX_BYTES: Final = 16 * 1024 * 1024
"""The size up to which a body is decompressed."""
MAX_KEYS: Final = 6
"""The number of keys of a JSON object up to which every order of them is tried."""
_LAYOUTS: Final = (
    ("compact JSON", (",", ":"), None),
    ("JSON with a space after each comma and colon", (", ", ": "), None),
    ("JSON indented by 2 spaces", (",", ": "), "  "),
    ("JSON indented by 4 spaces", (",", ": "), "    "),
    ("JSON indented by tabs", (",", ": "), "\t"),
)
"""Name, separators of items and keys, and indentation, as common JSON writers have them."""


def earlier_bodies(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield bodies that may have been changed into this one on the way, each after a description of that.

    The changes are in white space, line ends, a byte order mark, compression, and the layout of JSON.
    """
    unix = body.replace(b"\r\n", b"\n")
    yield "the line break at its end was removed", body + b"\n"
    yield "the line break at its end was removed", body + b"\r\n"
    yield "white space was added at its end", body.rstrip()
    yield "white space was added around it", body.strip()
    yield "its line ends were changed from LF to CRLF", unix
    yield "its line ends were changed from CRLF to LF", unix.replace(b"\n", b"\r\n")
    yield "a byte order mark was added", body.removeprefix(b"\xef\xbb\xbf")
    yield "its byte order mark was removed", b"\xef\xbb\xbf" + body
    with suppress(zlib.error):
        yield "it was compressed", zlib.decompressobj(31).decompress(body, MAX_BYTES)
    # Numbers keep their spelling, as texts after a NUL: 12.50 must not become 12.5.
    with suppress(ValueError, RecursionError):
        yield from _rewritten(body, json.loads(body, parse_int="\0{}".format, parse_float="\0{}".format))


def _rewritten(body: bytes, value: object) -> Iterator[tuple[str, bytes]]:
    """Yield the layouts of the JSON value that a body holds."""
    escaped = (True, False) if b"\\u" in body or not body.isascii() else (True,)
    slashed = (False, True) if b"/" in body else (False,)
    for layout, ordered, ascii_only, slashes in product(_LAYOUTS, (False, True), escaped, slashed):
        name, separators, indent = layout
        text = json.dumps(
            value, ensure_ascii=ascii_only, indent=indent, separators=separators, sort_keys=ordered
        )
        description = f"it was JSON that something wrote anew; the sender signed {name}"
        description += ", its keys in alphabetical order" if ordered else ""
        description += ", with letters beyond ASCII as they are" if not ascii_only else ""
        description += r", with \/ for /" if slashes else ""
        signed = _without_marks(text.replace("/", r"\/") if slashes else text)
        yield description, signed
        yield f"{description}, with a line break at its end", signed + b"\n"
    if isinstance(value, dict) and len(value) <= MAX_KEYS and list(value) == sorted(value):
        for (name, separators, _), order in product(_LAYOUTS[:2], permutations(value.items())):
            change = f"something put its keys into alphabetical order; the sender signed {name}"
            yield change, _without_marks(json.dumps(dict(order), separators=separators))


def _without_marks(text: str) -> bytes:
    # A lone surrogate can only come from an escape such as \ud800; encoding it must not raise.
    return re.sub(r'"\\u0000([^"]*)"', r"\1", text).encode("utf-8", "surrogatepass")
