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
    """The secret's own characters, as UTF-8."""
    if secret != secret.strip():
        raise ConfigError("a secret begins or ends with white space: remove it, it would be part of the key")
    return secret.encode()


def base64_secret(secret: str) -> bytes:
    """The bytes that the secret spells in standard base64; the padding may be left out, as senders do."""
    try:
        return base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except ValueError:
        raise ConfigError("a secret is not valid base64: copy it whole, as the sender shows it") from None


def hex_secret(secret: str) -> bytes:
    """The bytes that the secret spells in hexadecimal."""
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
        material = self._decode(secret)
        if len(material) < MIN_SECRET_BYTES:
            raise WeakSecret(len(material), MIN_SECRET_BYTES)
        return HmacKey(material)

    def sign(self, secret: str, content: bytes) -> bytes:
        return self.load(secret).digest(content)


@final
class HmacKey:
    """A keyed context, copied for each message: a fifth faster than keying anew, and the key is not kept."""

    __slots__ = ("_context",)

    algorithm: ClassVar[str] = HmacSha256.name
    public: ClassVar[bool] = False

    def __init__(self, material: bytes) -> None:
        self._context = hmac.new(material, digestmod="sha256")

    def digest(self, content: bytes) -> bytes:
        try:
            context = self._context.copy()
            context.update(content)
            return context.digest()
        except ValueError:  # no argument of ours can be wrong: OpenSSL found no memory, and says no more
            raise MemoryError from None

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        expected = self.digest(content)
        found = False
        for signature in signatures:
            found |= hmac.compare_digest(expected, signature)
        return found
