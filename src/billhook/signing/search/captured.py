"""Find candidate signatures, times and ids in a captured request. For billhook.signing.search."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Final, NamedTuple, get_args

from billhook.errors import SignatureMalformed
from billhook.signing.parsing import MAX_HEADER_BYTES, TIME_FORMATS, Encoding, TimeFormatName, read_signature
from billhook.signing.source import TYPE_HEADER
from billhook.signing.standard_webhooks import URL_SAFE

BASE64URL: Final = "base64url"
"""An encoding that the search recognises, although no scheme can be configured for it."""
HMAC_LENGTHS: Final = {"sha256": 32, "sha1": 20, "sha384": 48, "sha512": 64}
"""Bytes of an HMAC by its digest; the schemes of billhook verify HMAC-SHA256 only."""
SIGNATURE_LENGTHS: Final = (32, 64, 256, 384, 512)
"""Of HMAC-SHA256, ed25519, and RSA with 2048, 3072 and 4096 bits."""
MAX_TIMES: Final = 4
MAX_IDS: Final = 3
_YEARS: Final = range(2000, 2100)
"""Numbers that would be times outside of these years, such as a length, are not tried as times."""
_ENTRY: Final = re.compile(r"([A-Za-z0-9_-]{1,16})=(.*)", re.DOTALL)
_PREFIX: Final = re.compile(r"(?:(?! )[ -~]{0,39}(?![A-Za-z0-9])[ -~])?")
"""A prefix does not end in a letter or digit: what follows would be the end of a longer encoded text."""
_ID: Final = re.compile(r"[ -+\-/-~]{1,63}(?<!=)")
"""Longer texts are signatures, tokens or cookies, and what ends in = is base64."""
_NO_ID: Final = re.compile(
    r"accept.*|authorization|cache-control|connection|content-.*|cookie|date|expect|forwarded|host|keep-alive"
    r"|origin|pragma|referer|te|traceparent|tracestate|transfer-encoding|upgrade|user-agent|via"
    r"|x-forwarded-.*|x-real-ip|x-webhook-type"
)
"""Headers that clients and proxies add by themselves: none of them holds a message id."""


class HeaderPart(NamedTuple):
    """The text of a header, a word of it, or the value of an `entry` in a list of name=value."""

    header: str
    text: str
    entry: str | None = None
    separator: str = ","


class SignatureText(NamedTuple):
    """A part that decodes as a signature after its `prefix`; `encoding` may also be BASE64URL."""

    part: HeaderPart
    raw: bytes
    encoding: str
    prefix: str


class TimeText(NamedTuple):
    """A part that may be the time of signing."""

    part: HeaderPart
    format: TimeFormatName
    moment: datetime

    @property
    def is_date(self) -> bool:
        """Whether the header is Date, which an HTTP library may have added."""
        return self.part.header.lower() == "date"


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """A request as captured, with what may be its signature, its time and its id, the likely ones first.

    `headers` are as they were spelt. `event_type` is the value of the type's header, None without one.
    """

    headers: Mapping[str, str]
    body: bytes
    target: str
    event_type: str | None
    signatures: Sequence[SignatureText]
    times: Sequence[TimeText]
    ids: Sequence[tuple[str, str]]
    """Names and values of headers."""

    @classmethod
    def of(
        cls, headers: Mapping[str, str], body: bytes, target: str, type_header: str = TYPE_HEADER
    ) -> CapturedRequest:
        """Find signatures, times and ids among `headers`."""
        parts = list(_parts(headers))
        # Times in an entry beside the signature come first: schemes with such an entry sign it.
        times = sorted(_times(parts), key=lambda time: (time.part.entry is None, time.is_date))[:MAX_TIMES]
        taken = {time.part.text for time in times}
        ids = [
            (name, text)
            for name, text in headers.items()
            if _ID.fullmatch(text) and not _NO_ID.fullmatch(name.lower()) and text not in taken
        ]
        ids.sort(key=lambda each: (not each[0].lower().endswith("id"), "webhook" not in each[0].lower()))
        kinds = (text for name, text in headers.items() if name.lower() == type_header.lower())
        event_type = next(kinds, None)
        return cls(headers, body, target, event_type, list(_signatures(parts)), times, ids[:MAX_IDS])


def _parts(headers: Mapping[str, str]) -> Iterator[HeaderPart]:
    for name, value in headers.items():
        if not value.isascii() or len(value) > MAX_HEADER_BYTES:
            continue
        yield HeaderPart(name, value)
        for separator in (",", ";"):
            entries = [_ENTRY.fullmatch(entry) for entry in value.split(separator)]
            if all(entries):
                yield from (HeaderPart(name, entry[2], entry[1], separator) for entry in entries if entry)
        # Words that are too short for a signature are left out: a header may have thousands of them.
        words = value.split(" ") if " " in value else ()
        yield from (HeaderPart(name, word) for word in words if len(word) > min(HMAC_LENGTHS.values()))


def _times(parts: Sequence[HeaderPart]) -> Iterator[TimeText]:
    for part, time_format in product(parts, TIME_FORMATS.values()):
        with suppress(SignatureMalformed):
            moment = time_format.read(part.text, part.header)
            if moment.year in _YEARS:
                yield TimeText(part, time_format.name, moment)


def _signatures(parts: Sequence[HeaderPart]) -> Iterator[SignatureText]:
    """Yield what the end of each part decodes to, if that has the length of a signature."""
    lengths = {*HMAC_LENGTHS.values(), *SIGNATURE_LENGTHS}
    for part, length, encoding in product(parts, lengths, get_args(Encoding)):
        text, size = part.text, 2 * length
        if encoding == "base64":
            text, size = text.rstrip("="), -(-length * 4 // 3)
        prefix, encoded = text[:-size], text[-size:]
        if encoding == "base64":
            encoded = encoded.translate(URL_SAFE) + "=" * (-size % 4)
        with suppress(SignatureMalformed):
            raw = read_signature(encoded, encoding, length, "")
            as_read = encoding if part.text == prefix + encoded else BASE64URL
            if _PREFIX.fullmatch(prefix):
                yield SignatureText(part, raw, as_read, prefix)
