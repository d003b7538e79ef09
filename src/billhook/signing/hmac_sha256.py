"""HMAC-SHA256 over a shared secret. Source: RFC 2104."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, Literal, final

from billhook.errors import ConfigError, WeakSecret
from billhook.signing.parsing import MAX_SIGNATURES

__all__ = ["MIN_SECRET_BYTES", "SECRET_ENCODINGS", "HmacSha256", "SecretEncoding", "base64_secret"]

MIN_SECRET_BYTES: Final = 16

SecretEncoding = Literal["text", "base64", "hex"]


def text_secret(secret: str) -> bytes:
    """Return the secret's characters as UTF-8."""
    # Usually a line break from a file, which would make every signature mismatch.
    if secret != secret.strip():
        raise ConfigError("a secret begins or ends with white space: remove it, it would be part of the key")
    return secret.encode()


def base64_secret(secret: str) -> bytes:
    """Decode standard base64; the padding may be missing, as some senders leave it out."""
    try:
        return base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except ValueError:
        raise ConfigError("a secret is not valid base64: copy it whole, as the sender shows it") from None


def hex_secret(secret: str) -> bytes:
    """Decode hexadecimal."""
    try:
        return binascii.unhexlify(secret)
    except ValueError:
        raise ConfigError(
            "a secret is not valid hexadecimal: copy it whole, as the sender shows it"
        ) from None


SECRET_ENCODINGS: Final[Mapping[SecretEncoding, Callable[[str], bytes]]] = {
    "text": text_secret,
    "base64": base64_secret,
    "hex": hex_secret,
}


@final
class HmacSha256:
    """The algorithm; `decode` turns a configured secret into key material."""

    __slots__ = ("_decode",)

    name: ClassVar[str] = "hmac-sha256"
    signature_bytes: ClassVar[int | None] = 32
    most_signatures: ClassVar[int] = MAX_SIGNATURES

    def __init__(self, decode: Callable[[str], bytes] = text_secret) -> None:
        self._decode = decode

    def load(self, secret: str) -> HmacKey:
        return HmacKey(self._material(secret))

    def sign(self, secret: str, content: bytes) -> bytes:
        return hmac.digest(self._material(secret), content, "sha256")

    def _material(self, secret: str) -> bytes:
        material = self._decode(secret)
        if len(material) < MIN_SECRET_BYTES:
            raise WeakSecret(len(material), MIN_SECRET_BYTES)
        return material


@final
class HmacKey:
    """A keyed context, copied for each message: a fifth faster than a new one, without storing the key."""

    __slots__ = ("_context",)

    algorithm: ClassVar[str] = HmacSha256.name
    public: ClassVar[bool] = False

    def __init__(self, material: bytes) -> None:
        self._context = hmac.new(material, digestmod="sha256")

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        try:
            context = self._context.copy()
            context.update(content)
            expected = context.digest()
        except ValueError:  # the arguments are valid, so OpenSSL is out of memory
            raise MemoryError from None
        # No early return: the time must not depend on which signature matches.
        found = False
        for signature in signatures:
            found |= hmac.compare_digest(expected, signature)
        return found
