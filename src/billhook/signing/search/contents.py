"""Generate candidate contents: many templates rendered, and the bodies that may have been changed since.

For billhook.signing.search. The templates need not be ones that a receiver may use: that is checked when one
of them fits.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import permutations, product
from typing import Any, Final, NamedTuple

from billhook.signing.search.captured import CapturedRequest, TimeText

__all__ = ["KNOWN", "CandidateContent", "contents", "earlier_bodies", "mixed_templates", "uniform_templates"]

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
"""What known senders sign, first."""

_SEPARATORS: Final = (".", ":", "\n", "|", "", "-", ",", ";", "_", "/", "~", " ", "&", "+", "#", "\r\n")
_MIXED: Final = (".", ":", "|", "~")
_VERSIONS: Final = tuple(f"v{number}" for number in range(10))
MOST_BYTES: Final = 16 * 1024 * 1024
"""Of a body that is decompressed."""
MOST_KEYS: Final = 6
"""Of an object whose keys are tried in every order."""
_FIELDS: Final = ("id", "timestamp", "type", "body")


class CandidateContent(NamedTuple):
    """Bytes that may have been signed; `time` and `id_header` are where the fields of the template are from.

    `digest`: the SHA-256 of what the template renders is signed.
    """

    template: str
    data: bytes
    time: TimeText | None
    id_header: str | None
    digest: bool = False


def uniform_templates(
    separators: Sequence[str] = _SEPARATORS, versions: Sequence[str] = _VERSIONS[:3]
) -> Iterator[str]:
    """Yield every order of the fields with one separator between all of them, also after a version."""
    for fields, separator in product(_orders(_FIELDS), separators):
        joined = separator.join(f"{{{field}}}" for field in fields)
        if len(fields) > 1:
            yield joined
        for version in versions:
            yield f"{version}:{joined}"
            if separator not in ("", ":"):
                yield f"{version}{separator}{joined}"


def mixed_templates(fields: Sequence[str]) -> Iterator[str]:
    """Yield every order of all of `fields` with any of the usual separators between two of them.

    With and without a version before them, and a full stop behind.
    """
    starts = ["", *(f"{version}:" for version in _VERSIONS)]
    for start, end, order in product(starts, ("", "."), permutations(fields)):
        for separators in product(_MIXED, repeat=len(fields) - 1):
            pairs = zip(order, [*separators, end], strict=True)
            yield start + "".join(f"{{{field}}}{separator}" for field, separator in pairs)


def _orders(fields: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for count in range(1, len(fields) + 1):
        for order in permutations(fields, count):
            if "body" in order:
                yield order


def contents(templates: Iterable[str], request: CapturedRequest, body: bytes) -> Iterator[CandidateContent]:
    """Render each template with `body` and each of the request's times and ids; skip those it has not."""
    for template in templates:
        literals, fields = _split(template)
        times = request.times if "timestamp" in fields else (None,)
        ids = request.ids if "id" in fields else (("", ""),)
        if "type" in fields and request.event_type is None:
            continue
        for time, (header, text) in product(times, ids):
            values = {
                "timestamp": b"" if time is None else time.text.encode(),
                "id": text.encode(),
                "type": (request.event_type or "").encode(),
                "body": body,
            }
            data = b"".join(
                piece
                for literal, field in zip(literals, (*fields, ""), strict=True)
                for piece in (literal, values.get(field, b""))
            )
            yield CandidateContent(template, data, time, header or None)


@lru_cache(4_096)
def _split(template: str) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    pieces = re.split(r"\{([a-z]+)\}", template)
    return tuple(piece.encode() for piece in pieces[0::2]), tuple(pieces[1::2])


# --- bodies before a proxy changed them -----------------------------------------------------------


def earlier_bodies(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what the body may have been before something on the way changed it, and what would be changed.

    White space at its end and its line ends, a byte order mark, and, for JSON, the layouts of common writers.
    No body is yielded twice, and never `body` itself.
    """
    seen = {body}
    for change, earlier in _changed(body):
        if earlier not in seen:
            seen.add(earlier)
            yield change, earlier


def _changed(body: bytes) -> Iterator[tuple[str, bytes]]:
    yield "the line break at its end was removed", body + b"\n"
    yield "the line break at its end was removed", body + b"\r\n"
    yield "white space was added at its end", body.rstrip()
    yield "white space was added around it", body.strip()
    unix = body.replace(b"\r\n", b"\n")
    yield "its line ends were changed from LF to CRLF", unix
    yield "its line ends were changed from CRLF to LF", unix.replace(b"\n", b"\r\n")
    yield "a byte order mark was added", body.removeprefix(b"\xef\xbb\xbf")
    yield "its byte order mark was removed", b"\xef\xbb\xbf" + body
    if body.startswith(b"\x1f\x8b"):
        with suppress(zlib.error):
            yield "it was compressed", zlib.decompressobj(31).decompress(body, MOST_BYTES)
    yield from _rewritten(body)


class _Object(list[Any]):
    """The pairs of a JSON object, in their order."""


class _Number(str):
    """A number as it is spelt: 12.50 is not 12.5."""


class _Style(NamedTuple):
    """How a JSON writer writes; `indent` is that of one level, None for all in one line."""

    description: str
    comma: str
    colon: str
    indent: str | None = None
    ordered: bool = False
    ascii_only: bool = True
    slashes: bool = False


_LAYOUTS: Final = (
    _Style("compact JSON", ",", ":"),
    _Style("JSON with a space after each comma and colon", ", ", ": "),
    _Style("JSON indented by 2 spaces", ",", ": ", "  "),
    _Style("JSON indented by 4 spaces", ",", ": ", "    "),
    _Style("JSON indented by tabs", ",", ": ", "\t"),
)


def _rewritten(body: bytes) -> Iterator[tuple[str, bytes]]:
    try:
        value = json.loads(body, object_pairs_hook=_Object, parse_int=_Number, parse_float=_Number)
        for style in _styles(body):
            # Half a surrogate pair can only be in an escape, and is so in every body that has one.
            text = _written(value, style).encode("utf-8", "surrogatepass")
            description = f"it was JSON that something wrote anew; the sender signed {style.description}"
            yield description, text
            yield f"{description}, with a line break at its end", text + b"\n"
        yield from _reordered(value)
    except (ValueError, RecursionError):
        return


def _reordered(value: object) -> Iterator[tuple[str, bytes]]:
    """Yield every order of a small object's keys, if they are in the alphabetical one of a program."""
    keys = [key for key, _ in value] if isinstance(value, _Object) else []
    if len(keys) <= MOST_KEYS and keys == sorted(keys):
        for style in _LAYOUTS[:2]:
            for order in permutations(value if isinstance(value, _Object) else ()):
                description = (
                    f"something put its keys into alphabetical order; the sender signed {style.description}"
                )
                yield description, _written(_Object(order), style).encode("utf-8", "surrogatepass")


def _styles(body: bytes) -> Iterator[_Style]:
    """Yield the styles that make a difference for `body`."""
    escaped = (True, False) if b"\\u" in body or not body.isascii() else (True,)
    slashed = (False, True) if b"/" in body else (False,)
    for layout, ordered, ascii_only, slashes in product(_LAYOUTS, (False, True), escaped, slashed):
        description = layout.description
        description += ", its keys in alphabetical order" if ordered else ""
        description += ", with letters beyond ASCII as they are" if not ascii_only else ""
        description += r", with \/ for /" if slashes else ""
        yield layout._replace(
            description=description, ordered=ordered, ascii_only=ascii_only, slashes=slashes
        )


def _written(value: object, style: _Style, margin: str = "\n") -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=style.ascii_only)
        return text.replace("/", r"\/") if style.slashes else text
    if not isinstance(value, list):
        return json.dumps(value)
    inner = margin + (style.indent or "")
    if isinstance(value, _Object):
        pairs = sorted(value, key=lambda pair: pair[0]) if style.ordered else value
        items = [f"{_written(k, style)}{style.colon}{_written(v, style, inner)}" for k, v in pairs]
    else:
        items = [_written(item, style, inner) for item in value]
    opening, closing = "{}" if isinstance(value, _Object) else "[]"
    if style.indent is None or not items:
        return opening + style.comma.join(items) + closing
    return opening + inner + (style.comma + inner).join(items) + margin + closing
