"""Find candidate signatures, times and ids in a captured request. For billhook.signing.search."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from billhook.errors import SignatureMalformed
from billhook.signing.parsing import (
    IDENTIFIER,
    MAX_HEADER_BYTES,
    TIME_FORMATS,
    Encoding,
    TimeFormatName,
    read_signature,
)
from billhook.signing.standard_webhooks import URL_SAFE, VERSIONS

BASE64URL: Final = "base64url"
"""An encoding that is recognised, and that no scheme here can be configured for."""
HMAC_LENGTHS: Final = {"sha256": 32, "sha1": 20, "sha384": 48, "sha512": 64}
"""In bytes, by digest; the schemes of billhook verify the first."""
SIGNATURE_LENGTHS: Final = (32, 64, 256, 384, 512)
"""Of HMAC-SHA256, ed25519, and RSA with 2048, 3072 and 4096 bits."""
MOST_TIMES: Final = 4
MOST_IDS: Final = 3
LONGEST_PREFIX: Final = 40
LONGEST_ID: Final = 64
_YEARS: Final = range(2000, 2100)
"""Another number that has the form of a time, such as a length, is no time of signing."""
_ENTRY: Final = re.compile(r"([A-Za-z0-9_-]{1,16})=(.*)", re.DOTALL)
_NO_ID: Final = re.compile(
    r"accept.*|authorization|cache-control|connection|content-.*|cookie|date|expect|forwarded|host|keep-alive"
    r"|origin|pragma|referer|te|traceparent|tracestate|transfer-encoding|upgrade|user-agent|via"
    r"|x-forwarded-.*|x-real-ip|x-webhook-type"
)
"""Headers that every client or proxy may add: none of them names a message."""


class HeaderPart(NamedTuple):
    """The text of a header, or of one entry of it.

    `entry` is its name in a list of name=value with `separator`; `version` that in a list of Standard
    Webhooks.
    """

    header: str
    text: str
    entry: str | None = None
    separator: str = ","
    version: str | None = None


class SignatureText(NamedTuple):
    """A part that decodes as a signature, behind `prefix`; `encoding` may be BASE64URL too."""

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
        """Whether the header is the one in which a server writes when it answers."""
        return self.part.header.lower() == "date"


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """A request as captured, with what may be its signature, its time and its id, the likely ones first.

    `headers` are as they were spelt. `event_type` is the value of X-Webhook-Type, None without one.
    """

    headers: Mapping[str, str]
    body: bytes
    event_type: str | None
    signatures: tuple[SignatureText, ...]
    times: tuple[TimeText, ...]
    ids: tuple[tuple[str, str], ...]
    """Names and values of headers."""

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> CapturedRequest:
        """Find signatures, times and ids among `headers`."""
        parts = list(_parts(headers))
        # An entry beside the signature is signed in every scheme that has one, and a server writes `Date`.
        times = sorted(_times(parts), key=lambda time: (time.part.entry is None, time.is_date))
        taken = {time.part.text for time in times[:MOST_TIMES]}
        ids = [(name, text) for name, text in headers.items() if _may_be_id(name, text) and text not in taken]
        ids.sort(key=lambda each: (not each[0].lower().endswith("id"), "webhook" not in each[0].lower()))
        return cls(
            headers,
            body,
            next((text for name, text in headers.items() if name.lower() == "x-webhook-type"), None),
            tuple(_signatures(parts)),
            tuple(times[:MOST_TIMES]),
            tuple(ids[:MOST_IDS]),
        )


def _parts(headers: Mapping[str, str]) -> Iterator[HeaderPart]:
    for name, value in headers.items():
        if not value.isascii() or len(value) > MAX_HEADER_BYTES:
            continue
        yield HeaderPart(name, value)
        for separator in (",", ";"):
            entries = [_ENTRY.fullmatch(entry) for entry in value.split(separator)]
            if all(entries):
                yield from (HeaderPart(name, entry[2], entry[1], separator) for entry in entries if entry)
        for item in value.split(" "):
            version, _, text = item.partition(",")
            if version in VERSIONS:
                yield HeaderPart(name, text, version=version)


def _may_be_id(name: str, text: str) -> bool:
    # Longer texts are signatures, tokens or cookies, and what ends so is base64.
    short = len(text) < LONGEST_ID and not text.endswith("=")
    return short and not _NO_ID.fullmatch(name.lower()) and bool(IDENTIFIER.fullmatch(text))


def _times(parts: list[HeaderPart]) -> Iterator[TimeText]:
    for part in parts:
        for time_format in TIME_FORMATS.values():
            try:
                moment = time_format.read(part.text, part.header)
            except SignatureMalformed:
                continue
            if moment.year in _YEARS:
                yield TimeText(part, time_format.name, moment)


def _signatures(parts: list[HeaderPart]) -> Iterator[SignatureText]:
    for part in parts:
        for length in {*HMAC_LENGTHS.values(), *SIGNATURE_LENGTHS}:
            for raw, encoding, prefix in _decoded(part.text, length):
                if part.version is None or (encoding == "base64" and not prefix):
                    yield SignatureText(part, raw, encoding, prefix)


def _decoded(text: str, length: int) -> Iterator[tuple[bytes, str, str]]:
    """Yield a signature of `length` bytes at the end of `text`, its encoding and the prefix before it."""
    bare = text.rstrip("=")
    digits = -(-length * 4 // 3)
    standard = bare[-digits:].translate(URL_SAFE) + "=" * (-digits % 4)
    readings: tuple[tuple[Encoding, str, str], ...] = (
        ("hex", text[-2 * length :], text[: -2 * length]),
        ("base64", standard, bare[:-digits]),
    )
    for encoding, encoded, prefix in readings:
        # A letter or digit before it would be a part of a longer text, which is no signature of this length.
        short = len(prefix) <= LONGEST_PREFIX and prefix.isprintable() and prefix == prefix.lstrip()
        if not short or prefix[-1:].isalnum():
            continue
        try:
            raw = read_signature(encoded, encoding, length, "")
        except SignatureMalformed:
            continue
        yield raw, encoding if text == prefix + encoded else BASE64URL, prefix
