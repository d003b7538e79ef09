"""Find candidate signatures, times and ids in a captured request. For billhook.signing.search."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, get_args

from billhook.errors import SignatureMalformed
from billhook.signing.parsing import (
    IDENTIFIER,
    MAX_HEADER_BYTES,
    TIME_FORMATS,
    Encoding,
    TimeFormatName,
    read_signature,
)

__all__ = ["BASE64URL", "CapturedRequest", "SignatureText", "TimeText", "signature_texts"]

BASE64URL: Final = "base64url"
"""An encoding that is recognised, and that no scheme here can be configured for."""
MOST_TIMES: Final = 4
MOST_IDS: Final = 3
LONGEST_PREFIX: Final = 40
LONGEST_ID: Final = 64
_YEARS: Final = range(2000, 2100)
"""Another number that has the form of a time, such as a length, is no time of signing."""
_ENTRY: Final = re.compile(r"([A-Za-z0-9_-]{1,16})=(.*)", re.DOTALL)
_URLSAFE: Final = re.compile(r"[A-Za-z0-9_-]+={0,2}", re.ASCII)
_NO_ID: Final = re.compile(
    r"accept.*|authorization|cache-control|connection|content-.*|cookie|date|expect|forwarded|host|keep-alive"
    r"|origin|pragma|referer|te|traceparent|tracestate|transfer-encoding|upgrade|user-agent|via"
    r"|x-forwarded-.*|x-real-ip|x-webhook-type"
)
"""Headers that every client or proxy may add: none of them names a message."""


class SignatureText(NamedTuple):
    """One text that decodes as a signature, and where it is in its header.

    `entry` is its name in a list of name=value with `separator`; `version` that in a list of Standard
    Webhooks. `encoding` may be BASE64URL too.
    """

    header: str
    raw: bytes
    encoding: str
    prefix: str = ""
    entry: str | None = None
    separator: str = ","
    version: str | None = None


class TimeText(NamedTuple):
    """One text that may be the time of signing: a header of its own, or an entry beside the signature."""

    header: str
    text: str
    format: TimeFormatName
    moment: datetime
    entry: str | None = None
    separator: str = ","


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """A request as captured, with what may be its time and its id. `headers` are as they were spelt."""

    headers: Mapping[str, str]
    body: bytes
    times: tuple[TimeText, ...]
    ids: tuple[tuple[str, str], ...]
    """Names and values of headers, the likely ones first."""

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> CapturedRequest:
        """Find times and ids among `headers`."""
        times = sorted(_times(headers), key=_time_rank)[:MOST_TIMES]
        taken = {time.text for time in times}
        ids = [(name, text) for name, text in headers.items() if _may_be_id(name, text) and text not in taken]
        return cls(headers, body, tuple(times), tuple(sorted(ids, key=_id_rank)[:MOST_IDS]))

    @property
    def event_type(self) -> str | None:
        """The value of X-Webhook-Type, the only type that a receiver here signs for; None without one."""
        return next((text for name, text in self.headers.items() if name.lower() == "x-webhook-type"), None)


def _time_rank(time: TimeText) -> tuple[bool, bool]:
    # An entry beside the signature is signed in every scheme that has one, and a server writes `Date`.
    return time.entry is None, time.header.lower() == "date"


def _id_rank(item: tuple[str, str]) -> tuple[bool, bool]:
    name = item[0].lower()
    return not name.endswith("id"), "webhook" not in name


def _may_be_id(name: str, text: str) -> bool:
    # Longer texts are signatures, tokens or cookies, and what ends so is base64.
    short = len(text) < LONGEST_ID and not text.endswith("=")
    return short and not _NO_ID.fullmatch(name.lower()) and bool(IDENTIFIER.fullmatch(text))


def _times(headers: Mapping[str, str]) -> Iterator[TimeText]:
    for name, value in headers.items():
        if len(value) > MAX_HEADER_BYTES:
            continue
        for text, entry, separator in (
            (value, None, ","),
            *((text, entry, separator) for separator, entry, text in _entries(value)),
        ):
            for time_format in TIME_FORMATS.values():
                try:
                    moment = time_format.read(text, name)
                except SignatureMalformed:
                    continue
                if moment.year in _YEARS:
                    yield TimeText(name, text, time_format.name, moment, entry, separator)


def _entries(value: str) -> Iterator[tuple[str, str, str]]:
    """Yield separator, name and text of each entry, for each separator by which all of `value` is a list."""
    for separator in (",", ";"):
        found = [_ENTRY.fullmatch(entry) for entry in value.split(separator)]
        for entry in found if all(found) else ():
            if entry is not None:  # pragma: no branch - all of them are entries
                yield separator, entry[1], entry[2]


def signature_texts(headers: Mapping[str, str], lengths_bytes: Collection[int]) -> Iterator[SignatureText]:
    """Yield every text in `headers` that is the encoding of a signature of one of these lengths."""
    for name, value in headers.items():
        if not value.isascii() or len(value) > MAX_HEADER_BYTES:
            continue
        for raw, encoding, prefix in _decoded(value, lengths_bytes):
            yield SignatureText(name, raw, encoding, prefix)
        for separator, entry, text in _entries(value):
            for raw, encoding, prefix in _decoded(text, lengths_bytes):
                yield SignatureText(name, raw, encoding, prefix, entry, separator)
        for item in value.split(" "):
            version, comma, text = item.partition(",")
            for raw, encoding, prefix in _decoded(text if comma else "", lengths_bytes):
                if encoding == "base64" and not prefix:
                    yield SignatureText(name, raw, encoding, version=version)


def _decoded(text: str, lengths_bytes: Collection[int]) -> Iterator[tuple[bytes, str, str]]:
    """Yield the signature at the end of `text`, its encoding and the prefix before it, for each reading."""
    for length in lengths_bytes:
        for encoding in get_args(Encoding):
            size = 2 * length if encoding == "hex" else 4 * -(-length // 3)
            prefix, tail = text[:-size], text[-size:]
            if len(tail) == size and _is_prefix(prefix):
                try:
                    yield read_signature(tail, encoding, length, ""), encoding, prefix
                except SignatureMalformed:
                    continue
        digits = -(-length * 4 // 3)
        found = _URLSAFE.search(text, max(0, len(text) - digits - 2))
        if found and found.end() == len(text) and len(found[0].rstrip("=")) == digits:
            prefix, raw = text[: found.start()], base64.urlsafe_b64decode(found[0].rstrip("=") + "==")
            # What standard base64 with its padding says is not another encoding.
            if (
                len(raw) == length
                and _is_prefix(prefix)
                and (set("-_") & set(found[0]) or "=" not in found[0])
            ):
                yield raw, BASE64URL, prefix


def _is_prefix(text: str) -> bool:
    # A letter or digit before it would be a part of a longer text, which is no signature of this length.
    short = len(text) <= LONGEST_PREFIX and text.isprintable() and text == text.lstrip()
    return short and not text[-1:].isalnum()
