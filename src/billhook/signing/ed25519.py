"""Ed25519 with the key spelling of Standard Webhooks. Source: RFC 8032; the Standard Webhooks specification.

`whpk_<base64>` is the public key to verify with, `whsk_<base64>` the private one to sign with: its 32-byte
seed, or seed and public key together, 64 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, final

from billhook.errors import ConfigError
from billhook.signing.hmac_sha256 import base64_secret
from billhook.signing.parsing import MAX_PUBLIC_KEY_SIGNATURES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["PRIVATE_PREFIX", "PUBLIC_PREFIX", "Ed25519"]

PUBLIC_PREFIX: Final = "whpk_"
PRIVATE_PREFIX: Final = "whsk_"
KEY_BYTES: Final = 32
_FIELD: Final = 2**255 - 19
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
# The y of the eight points whose order divides 8; with either sign of x. Source: RFC 8032, section 5.1.
_SMALL_ORDER: Final = frozenset({0, 1, _FIELD - 1, _ORDER_8, _FIELD - _ORDER_8})


@final
class Ed25519:
    """The algorithm."""

    __slots__ = ()

    name: ClassVar[str] = "ed25519"
    signature_bytes: ClassVar[int | None] = 64
    most_signatures: ClassVar[int] = MAX_PUBLIC_KEY_SIGNATURES

    def load(self, secret: str) -> Ed25519Key:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if secret.startswith(PRIVATE_PREFIX):
            raise ConfigError(
                f"a private key ({PRIVATE_PREFIX}) cannot verify: give its public key, {PUBLIC_PREFIX}"
            )
        raw = _decode(secret, PUBLIC_PREFIX)
        if len(raw) != KEY_BYTES:
            raise ConfigError(f"an ed25519 public key is {KEY_BYTES} bytes, got {len(raw)}")
        _require_strength(raw)
        return Ed25519Key(Ed25519PublicKey.from_public_bytes(raw))

    def sign(self, secret: str, content: bytes) -> bytes:
        return _private_key(secret).sign(content)


@final
class Ed25519Key:
    """One public key."""

    __slots__ = ("_public",)

    algorithm: ClassVar[str] = Ed25519.name
    public: ClassVar[bool] = True

    def __init__(self, public: Ed25519PublicKey) -> None:
        self._public = public

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        from cryptography.exceptions import InvalidSignature

        # All are verified, as for HMAC; there are at most four.
        found = False
        for signature in signatures:
            try:
                self._public.verify(signature, content)
            except InvalidSignature:
                continue
            found = True
        return found


def _private_key(secret: str) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = _decode(secret, PRIVATE_PREFIX)
    # libsodium and its ports store the seed together with the public key.
    if len(raw) not in (KEY_BYTES, 2 * KEY_BYTES):
        raise ConfigError(f"an ed25519 private key is {KEY_BYTES} or {2 * KEY_BYTES} bytes, got {len(raw)}")
    private = Ed25519PrivateKey.from_private_bytes(raw[:KEY_BYTES])
    if raw[KEY_BYTES:] not in (b"", private.public_key().public_bytes_raw()):
        raise ConfigError("an ed25519 private key of 64 bytes ends in a public key that is not its own")
    return private


def _require_strength(raw: bytes) -> None:
    """Refuse points of small order, for which anyone can sign, and second spellings of a point."""
    y = int.from_bytes(raw, "little") & (2**255 - 1)  # the highest bit is the sign of x
    if y >= _FIELD:
        raise ConfigError("an ed25519 public key is not in canonical form: give the sender's real key")
    if y in _SMALL_ORDER:  # all zeros are among them
        raise ConfigError(
            "an ed25519 public key is a point of small order, for which anyone can sign (zeros are one): "
            "give the sender's real key"
        )


def _decode(secret: str, prefix: str) -> bytes:
    if not secret.startswith(prefix):
        raise ConfigError(f"an ed25519 key must be spelled {prefix}<base64>")
    return base64_secret(secret.removeprefix(prefix))
