"""Strict parsers of signature headers from unverified senders: one spelling per value, bounded sizes.

They raise only SignatureMissing or SignatureMalformed, for any input. The standard library is more lenient
than a verifier may be: int() takes "+5", " 5", "1_0" and digits of every script,
b64decode() drops foreign characters, bytes.fromhex() skips spaces. The texts of the errors name the header
and the rule, and never repeat what was sent.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from typing import Final, Literal

from billhook.errors import SignatureMalformed, SignatureMissing

Encoding = Literal["hex", "base64"]

# Bounds for senders that are not verified yet; web servers accept headers of about this size.
MAX_HEADER_BYTES: Final = 8_192
MAX_SIGNATURES: Final = 16
MAX_PUBLIC_KEY_SIGNATURES: Final = 4
"""Verifying one costs a hundred times as much as an HMAC, and no rotation of keys needs more."""
MAX_ID_CHARACTERS: Final = 256
IDENTIFIER: Final = re.compile(rf"[ -+\-/-~]{{1,{MAX_ID_CHARACTERS}}}", re.ASCII)
"""Printable ASCII without "." and ",": a dot separates the fields of signed contents, and a comma the headers
that a proxy has joined."""


def read_header(headers: Mapping[str, str], name: str) -> str:
    """Return a header that is ASCII text of at most MAX_HEADER_BYTES.

    Raises SignatureMissing or SignatureMalformed.
    """
    value: object = headers.get(name)
    if value is None:
        raise SignatureMissing(f"the request has no {name} header")
    if not isinstance(value, str) or not value.isascii():
        raise SignatureMalformed(f"{name} is not ASCII text")
    if len(value) > MAX_HEADER_BYTES:
        raise SignatureMalformed(f"{name} is longer than {MAX_HEADER_BYTES} bytes")
    return value


def split_list(text: str, separator: str) -> list[str]:
    """Split the text of a list; blanks behind a separator, as are usual in headers, belong to no entry."""
    first, *others = text.split(separator)
    return [first, *(entry.lstrip(" \t") for entry in others)]


def read_identifier(text: str, header: str) -> str:
    """Return `text` if it is an identifier. Raises SignatureMalformed for any other."""
    if not IDENTIFIER.fullmatch(text):
        raise SignatureMalformed(
            f"{header} is not an id of 1 to {MAX_ID_CHARACTERS} printable ASCII characters "
            'without "." and ","'
        )
    return text


def outgoing_message_id(message_id: str | None) -> str:
    """Return `message_id`, or a random one for None. Raises ValueError for one that no receiver accepts."""
    if message_id is None:
        return f"msg_{os.urandom(16).hex()}"
    if not IDENTIFIER.fullmatch(message_id):
        raise ValueError('message_id must be 1 to 256 printable ASCII characters without "." and ","')
    return message_id


def read_signature(text: str, encoding: Encoding, length_bytes: int | None, header: str) -> bytes:
    """Decode a signature. Raises SignatureMalformed.

    `length_bytes` is the only length accepted; None where the length depends on the key (RSA).
    """
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


def encode_signature(signature: bytes, encoding: Encoding) -> str:
    """Return the text that read_signature() decodes."""
    return signature.hex() if encoding == "hex" else base64.b64encode(signature).decode()
