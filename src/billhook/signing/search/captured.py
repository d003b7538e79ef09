"""Find what may be signatures, times and ids in a captured request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Final, NamedTuple, get_args

from billhook.errors import SignatureMalformed
from billhook.signing.parsing import MAX_HEADER_BYTES, Encoding, read_signature, split_list
from billhook.signing.standard_webhooks import URL_SAFE
from billhook.signing.times import TIME_FORMATS, TimeFormatName

BASE64URL: Final = "base64url"
"""An encoding that the search recognises, although no scheme can be configured for it."""
HMAC_LENGTHS: Final = {"sha256": 32, "sha1": 20, "sha384": 48, "sha512": 64}
"""Bytes of an HMAC by its hash function; those that no scheme of billhook has are recognised all the same."""
SIGNATURE_LENGTHS: Final = (32, 64, 256, 384, 512)
"""Of HMAC-SHA256, ed25519 and HMAC-SHA512, and RSA with 2048, 3072 and 4096 bits."""
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


class Part(NamedTuple):
    """The text of a header, a word of it, or the value of an `entry` in a list of name=value.

    If it may be the time of signing, `moment` is that time, written in `time_format`.
    """

    header: str
    text: str
    entry: str | None = None
    separator: str = ","
    time_format: TimeFormatName = "unix"
    moment: datetime | None = None

    @property
    def is_date(self) -> bool:
        """Whether the header is Date, which an HTTP library may have added."""
        return self.header.lower() == "date"


class SignatureText(NamedTuple):
    """A part that decodes as a signature after its `prefix`; `encoding` may also be BASE64URL."""

    part: Part
    raw: bytes
    encoding: str
    prefix: str


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """A request as captured, its headers as they were spelt, with what may be its signatures.

    `values` has for each field of a template the parts that may be its value, the likely ones first.
    """

    headers: Mapping[str, str]
    body: bytes
    signatures: Sequence[SignatureText]
    values: Mapping[str, Sequence[Part]]


def read_request(headers: Mapping[str, str], body: bytes, target: str, type_header: str) -> CapturedRequest:
    """Find the signatures, times, ids and the type among `headers`."""
    parts = list(_parts(headers))
    # Times in an entry beside the signature come first: schemes with such an entry sign it.
    times = sorted(_times(parts), key=lambda part: (part.entry is None, part.is_date))[:MAX_TIMES]
    taken = {part.text for part in times}
    ids = [
        Part(name, text)
        for name, text in headers.items()
        if _ID.fullmatch(text) and not _NO_ID.fullmatch(name.lower()) and text not in taken
    ]
    ids.sort(key=lambda part: _id_rank(part.header.lower()))
    types = [Part(name, text) for name, text in headers.items() if name.lower() == type_header.lower()]
    values = {"timestamp": times, "id": ids[:MAX_IDS], "type": types[:1], "path": [Part("", target)]}
    return CapturedRequest(headers, body, list(_signatures(parts)), values)


def _id_rank(header: str) -> tuple[bool, bool, bool]:
    # The id of a request is often a proxy's.
    return not header.endswith("id"), "request" in header, "webhook" not in header


def _parts(headers: Mapping[str, str]) -> Iterator[Part]:
    for name, value in headers.items():
        if not value.isascii() or len(value) > MAX_HEADER_BYTES:
            continue
        separator = ";" if ";" in value else ","
        entries = [_ENTRY.fullmatch(entry) for entry in split_list(value, separator)]
        if all(entries):
            yield from (Part(name, entry[2], entry[1], separator) for entry in entries if entry)
        yield Part(name, value)
        # Words that are too short for a signature are left out: a header may have thousands of them.
        words = value.split(" ") if " " in value else ()
        yield from (Part(name, word) for word in words if len(word) > min(HMAC_LENGTHS.values()))


def _times(parts: Sequence[Part]) -> Iterator[Part]:
    for part, time_format in product(parts, TIME_FORMATS.values()):
        with suppress(SignatureMalformed):
            moment = time_format.read(part.text, part.header)
            if moment.year in _YEARS:
                yield part._replace(time_format=time_format.name, moment=moment)


def _signatures(parts: Sequence[Part]) -> Iterator[SignatureText]:
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
