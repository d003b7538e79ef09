"""RSA with SHA-256 and PKCS#1 v1.5 padding. Source: RFC 8017, section 8.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, final

from billhook.errors import ConfigError
from billhook.signing.parsing import MAX_PUBLIC_KEY_SIGNATURES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

__all__ = ["MIN_KEY_BITS", "RsaSha256"]

# A shorter key can be factored, and a smaller exponent makes padding errors exploitable.
MIN_KEY_BITS: Final = 2_048
MIN_EXPONENT: Final = 65_537  # Source: NIST SP 800-131A


@final
class RsaSha256:
    """The algorithm; keys are PEM text."""

    # cryptography is imported on use: HMAC alone does not need it.

    __slots__ = ()

    name: ClassVar[str] = "rsa-sha256"
    signature_bytes: ClassVar[int | None] = None  # as long as the key's modulus
    most_signatures: ClassVar[int] = MAX_PUBLIC_KEY_SIGNATURES

    def load(self, secret: str) -> RsaKey:
        return RsaKey(_public_key(secret))

    def sign(self, secret: str, content: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        return _private_key(secret).sign(content, PKCS1v15(), SHA256())


@final
class RsaKey:
    """One public key."""

    __slots__ = ("_public",)

    algorithm: ClassVar[str] = RsaSha256.name
    public: ClassVar[bool] = True

    def __init__(self, public: RSAPublicKey) -> None:
        self._public = public

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        # All are verified, as for HMAC; there are at most four.
        found = False
        for signature in signatures:
            try:
                self._public.verify(signature, content, PKCS1v15(), SHA256())
            except InvalidSignature:
                continue
            found = True
        return found


def _public_key(pem: str) -> RSAPublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if "PRIVATE KEY" in pem:
        raise ConfigError(
            "a private key was given to verify with: give the public key, the receiver needs no more"
        )
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError("a key is not a public key in PEM (-----BEGIN PUBLIC KEY-----)") from None
    if not isinstance(key, RSAPublicKey):
        raise ConfigError(f"a public key in PEM must be RSA, got {type(key).__name__}")
    _require_strength(key)
    return key


def _private_key(pem: str) -> RSAPrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: the PEM is encrypted
        raise ConfigError(
            "a key is not an unencrypted private key in PEM (-----BEGIN PRIVATE KEY-----)"
        ) from None
    if not isinstance(key, RSAPrivateKey):
        raise ConfigError(f"a private key in PEM must be RSA, got {type(key).__name__}")
    _require_strength(key.public_key())
    return key


def _require_strength(key: RSAPublicKey) -> None:
    bits, exponent = key.key_size, key.public_numbers().e
    if bits < MIN_KEY_BITS:
        raise ConfigError(f"an RSA key of {bits} bits is too short: at least {MIN_KEY_BITS} are needed")
    if exponent < MIN_EXPONENT:
        raise ConfigError(
            f"an RSA key with the exponent {exponent} is weak: at least {MIN_EXPONENT} is needed"
        )
