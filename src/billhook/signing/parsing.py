"""Strict parsers of signature headers from unverified senders: one spelling per value, bounded sizes.

They raise only SignatureMissing or SignatureMalformed, for any input. The standard library is more lenient
than a verifier may be: int() takes "+5", " 5", "1_0" and digits of every script,
b64decode() drops foreign characters, bytes.fromhex() skips spaces. The texts of the errors name the header
and the rule, and never repeat what was sent.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from billhook.errors import SignatureMalformed, SignatureMissing

__all__ = [
    "LAST_TIMESTAMP",
    "MAX_HEADER_BYTES",
    "MAX_ID_CHARACTERS",
    "MAX_PUBLIC_KEY_SIGNATURES",
    "MAX_SIGNATURES",
    "MAX_TIMESTAMP_DIGITS",
    "Encoding",
    "check_signatures",
    "encode_signature",
    "is_identifier",
    "read_header",
    "read_identifier",
    "read_signature",
    "read_timestamp",
    "split_entries",
]

Encoding = Literal["hex", "base64"]

# Bounds for senders that are not verified yet; web servers accept headers of about this size.
MAX_HEADER_BYTES: Final = 8_192
MAX_SIGNATURES: Final = 16
MAX_PUBLIC_KEY_SIGNATURES: Final = 4
"""Each costs a hundred times what HMAC costs, and no rotation needs more."""
MAX_ID_CHARACTERS: Final = 256
MAX_TIMESTAMP_DIGITS: Final = 12
LAST_TIMESTAMP: Final = 253_402_300_799  # 9999-12-31T23:59:59Z, the last second that a datetime can hold


def read_header(headers: Mapping[str, str], name: str) -> str:
    """Return a header as ASCII text of at most MAX_HEADER_BYTES."""
    value: object = headers.get(name)
    if value is None:
        raise SignatureMissing(f"the request has no {name} header")
    if not isinstance(value, str) or not value.isascii():
        raise SignatureMalformed(f"{name} is not ASCII text")
    if len(value) > MAX_HEADER_BYTES:
        raise SignatureMalformed(f"{name} is longer than {MAX_HEADER_BYTES} bytes")
    return value


def split_entries(text: str, separator: str, most: int, header: str) -> list[str]:
    """Split a list header; more than `most` entries are refused before the split."""
    if text.count(separator) >= most:
        raise SignatureMalformed(f"{header} has more than {most} entries")
    return text.split(separator)


def read_timestamp(text: str, header: str) -> int:
    """Parse Unix seconds: 1 to 12 ASCII digits, no sign, no leading zero, up to the year 9999."""
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_TIMESTAMP_DIGITS:
        raise SignatureMalformed(f"{header} holds no timestamp of 1 to {MAX_TIMESTAMP_DIGITS} ASCII digits")
    seconds = int(text)
    if str(seconds) != text or seconds > LAST_TIMESTAMP:
        raise SignatureMalformed(f"{header} holds a timestamp with leading zeros or after the year 9999")
    return seconds


def is_identifier(text: str) -> bool:
    """Return True for 1 to 256 printable ASCII characters without "." and ","."""
    # A dot separates the fields of signed contents, and a comma the headers that a proxy has joined.
    return (
        0 < len(text) <= MAX_ID_CHARACTERS
        and text.isascii()
        and text.isprintable()
        and "." not in text
        and "," not in text
    )


def read_identifier(text: str, header: str) -> str:
    """Return `text` if it is an identifier; SignatureMalformed otherwise."""
    if not is_identifier(text):
        raise SignatureMalformed(
            f"{header} is not an id of 1 to {MAX_ID_CHARACTERS} printable ASCII characters "
            'without "." and ","'
        )
    return text


def read_signature(text: str, encoding: Encoding, length_bytes: int | None, header: str) -> bytes:
    """Decode a signature of `length_bytes`; None if the length depends on the key (RSA)."""
    try:
        # Canonical base64 only: its unused last bits would give one signature several spellings.
        if encoding == "hex":
            raw = binascii.unhexlify(text)  # either case, no spaces; 64 characters are exactly 32 bytes
            canonical = True
        else:
            raw = base64.b64decode(text, validate=True)
            canonical = binascii.b2a_base64(raw, newline=False) == text.encode()
    except ValueError:  # binascii.Error and UnicodeEncodeError are ValueErrors
        raise SignatureMalformed(f"{header} holds a signature that is not {encoding}") from None
    if not canonical:
        raise SignatureMalformed(f"{header} holds a signature that is not in canonical base64")
    if not raw or (length_bytes is not None and len(raw) != length_bytes):
        raise SignatureMalformed(f"{header} holds a signature of the wrong length")
    return raw


def check_signatures(signatures: Sequence[object], most: int, header: str) -> None:
    """Raise SignatureMalformed for more than `most` signatures of one algorithm."""
    if len(signatures) > most:
        raise SignatureMalformed(f"{header} has more than {most} signatures of one kind")


def encode_signature(signature: bytes, encoding: Encoding) -> str:
    """Return the text that read_signature() decodes."""
    return signature.hex() if encoding == "hex" else base64.b64encode(signature).decode()
