"""Generate candidate contents: rendered templates, and the bodies that the sender may have signed.

For billhook.signing.search. Some of the templates are not allowed in a receiver, which is checked when one of
them fits.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import permutations, product
from typing import Final, NamedTuple

from billhook.signing.content_template import FIELDS
from billhook.signing.search.captured import CapturedRequest, TimeText

KNOWN: Final = (
    "{body}",
    "{timestamp}.{body}",
    "{id}.{timestamp}.{body}",
    "{timestamp}:{body}",
    "{timestamp}{body}",
    "{timestamp}\n{body}",
    "v0:{timestamp}:{body}",
    "v1:{timestamp}:{body}",
    "{timestamp}.{type}.{body}",
    "{id}.{body}",
    "{body}{timestamp}",
    "{body}.{timestamp}",
)
"""The contents of known senders, which are tried first."""
SEPARATORS: Final = (".", ":", "\n", "|", "", "-", ",", ";", "_", "/", "~", " ", "&", "+", "#", "\r\n")
_MIXED: Final = (".", ":", "|", "~")
MAX_BYTES: Final = 16 * 1024 * 1024
"""The size up to which a body is decompressed."""
MAX_KEYS: Final = 6
"""The number of keys of a JSON object up to which every order of them is tried."""


class CandidateContent(NamedTuple):
    """Bytes that may have been signed; `time` and `id_header` are the sources of the template's fields.

    With `digest`, the bytes are the SHA-256 of the rendered template.
    """

    template: str
    data: bytes
    time: TimeText | None
    id_header: str | None
    digest: bool


def uniform_templates(
    separators: Sequence[str] = SEPARATORS, versions: int = 3, fields: Sequence[str] = FIELDS
) -> Iterator[str]:
    """Yield every order of the fields with one separator between all of them, also after a version."""
    for order, separator in product(_orders(fields), separators):
        joined = separator.join(order)
        yield joined
        for number in range(versions):
            yield f"v{number}:{joined}"
            yield f"v{number}{separator}{joined}"


def mixed_templates(start: str) -> Iterator[str]:
    """Yield every order of the fields behind `start` with any of the usual separators between two of them.

    Each comes once as it is, and once with a full stop behind it.
    """
    for order in _orders(FIELDS):
        for end, *between in product(("", "."), *[_MIXED] * (len(order) - 1)):
            yield start + "".join(map("".join, zip(order, [*between, end], strict=True)))


def _orders(fields: Sequence[str]) -> list[list[str]]:
    """Return the placeholders of the body and any of the other fields in every order, the shortest first."""
    orders = [order for count in range(len(fields)) for order in permutations(fields, count + 1)]
    return [[f"{{{field}}}" for field in order] for order in orders if "body" in order]


def contents(templates: Iterable[str], request: CapturedRequest) -> Iterator[CandidateContent]:
    """Render each template with each time and id of the request; skip it if the request has no such field."""
    for template in dict.fromkeys(templates):
        times = request.times if "{timestamp}" in template else (None,)
        ids = request.ids if "{id}" in template else (("", ""),)
        if "{type}" in template and request.event_type is None:
            continue
        for time, (header, text) in product(times, ids):
            head = template.replace("{timestamp}", time.part.text if time else "").replace("{id}", text)
            head = head.replace("{type}", request.event_type or "").replace("{path}", request.target)
            data = head.encode().replace(b"{body}", request.body)
            yield CandidateContent(template, data, time, header or None, digest=False)
            yield CandidateContent(template, hashlib.sha256(data).digest(), time, header or None, digest=True)


# --- bodies before a proxy changed them -----------------------------------------------------------


def earlier_bodies(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield bodies that may have been changed into this one on the way, each after a description of that.

    The changes are in white space, line ends, a byte order mark, compression, and the layout of JSON.
    """
    yield "the line break at its end was removed", body + b"\n"
    yield "the line break at its end was removed", body + b"\r\n"
    yield "white space was added at its end", body.rstrip()
    yield "white space was added around it", body.strip()
    unix = body.replace(b"\r\n", b"\n")
    yield "its line ends were changed from LF to CRLF", unix
    yield "its line ends were changed from CRLF to LF", unix.replace(b"\n", b"\r\n")
    yield "a byte order mark was added", body.removeprefix(b"\xef\xbb\xbf")
    yield "its byte order mark was removed", b"\xef\xbb\xbf" + body
    with suppress(zlib.error):
        yield "it was compressed", zlib.decompressobj(31).decompress(body, MAX_BYTES)
    with suppress(ValueError, RecursionError):
        yield from _rewritten(body)


_LAYOUTS: Final = (
    ("compact JSON", (",", ":"), None),
    ("JSON with a space after each comma and colon", (", ", ": "), None),
    ("JSON indented by 2 spaces", (",", ": "), "  "),
    ("JSON indented by 4 spaces", (",", ": "), "    "),
    ("JSON indented by tabs", (",", ": "), "\t"),
)
"""Name, separators of items and keys, and indentation, as common JSON writers have them."""


def _rewritten(body: bytes) -> Iterator[tuple[str, bytes]]:
    # Numbers keep their spelling, as texts after a NUL: 12.50 must not become 12.5.
    value = json.loads(body, parse_int="\0{}".format, parse_float="\0{}".format)
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
