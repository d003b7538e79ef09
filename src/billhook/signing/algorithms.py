"""The algorithms of signatures: HMAC with SHA-256 or SHA-512, Ed25519, and RSA.

RSA signatures are made with SHA-256 and have PKCS#1 v1.5 padding.

Ed25519 has the key spelling of Standard Webhooks: `whpk_<base64>` is the public key to verify with,
`whsk_<base64>` the private one to sign with: its 32-byte seed, or seed and public key together, 64 bytes.
Source: RFC 2104; RFC 4231; RFC 8032; RFC 8017, section 8.2; the Standard Webhooks specification.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias, final, get_args

from billhook.errors import ConfigError, MissingExtra, WeakSecret
from billhook.signing.parsing import MAX_PUBLIC_KEY_SIGNATURES, MAX_SIGNATURES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
    from cryptography.hazmat.primitives.hashes import SHA256

MIN_SECRET_BYTES: Final = 16

HmacName = Literal["hmac-sha256", "hmac-sha512"]
"""The algorithms with a shared secret; the part behind `hmac-` is the name of the hash function."""
AlgorithmName = Literal[HmacName, "rsa-sha256", "ed25519"]
SecretEncoding = Literal["text", "base64", "hex"]


def base64_secret(secret: str) -> bytes:
    """Decode a secret in standard base64; the padding may be missing, as some senders leave it out."""
    try:
        return base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except ValueError:
        raise ConfigError("a secret is not valid base64: copy it whole, as the sender shows it") from None


def hex_secret(secret: str) -> bytes:
    """Decode a secret in hexadecimal."""
    try:
        return binascii.unhexlify(secret)
    except ValueError:
        raise ConfigError(
            "a secret is not valid hexadecimal: copy it whole, as the sender shows it"
        ) from None


SECRET_ENCODINGS: Final[Mapping[SecretEncoding, Callable[[str], bytes]]] = {
    "text": str.encode,
    "base64": base64_secret,
    "hex": hex_secret,
}


def digest_of(name: str) -> str:
    """Return the name of the hash function of an HMAC, as hashlib has it."""
    return name.removeprefix("hmac-")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One kind of signature: loads its keys, and signs.

    `load(secret)` returns the key to verify with, and raises ConfigError or WeakSecret if it is unusable.
    `sign(secret, content)` returns the raw signature; `secret` is the private key of a pair. In one request
    there may be `most_signatures`.
    """

    name: str
    load: Callable[[str], Key]
    sign: Callable[[str, bytes], bytes]
    signature_bytes: int | None
    most_signatures: int = MAX_PUBLIC_KEY_SIGNATURES


def hmac_algorithm(name: HmacName = "hmac-sha256", decode: Callable[[str], bytes] = str.encode) -> Algorithm:
    """Return HMAC with a hash function; `decode` turns a configured secret into key material."""
    digest = digest_of(name)

    def material(secret: str) -> bytes:
        found = decode(secret)
        if len(found) < MIN_SECRET_BYTES:
            raise WeakSecret(len(found), MIN_SECRET_BYTES)
        return found

    return Algorithm(
        name,
        lambda secret: HmacKey(name, digest, material(secret)),
        lambda secret, content: hmac.digest(material(secret), content, digest),
        hashlib.new(digest).digest_size,
        MAX_SIGNATURES,
    )


@final
class HmacKey:
    """Verifies an HMAC by a keyed context that is copied for each message.

    That is a fifth faster than a new context, and the key is not stored.
    """

    __slots__ = ("_context", "algorithm")

    public: ClassVar[bool] = False

    def __init__(self, algorithm: str, digest: str, material: bytes) -> None:
        self.algorithm: Final = algorithm
        self._context = hmac.new(material, digestmod=digest)

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """Return True if this key made any of `signatures` over `content`."""
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


def require_cryptography() -> None:
    """Raise MissingExtra if the package is not installed: only keys with a public part need it."""
    try:
        import_module("cryptography")
    except ModuleNotFoundError:
        raise MissingExtra("a key of RSA or ed25519", "asymmetric") from None


PUBLIC_PREFIX: Final = "whpk_"
PRIVATE_PREFIX: Final = "whsk_"
KEY_BYTES: Final = 32
_FIELD: Final = 2**255 - 19
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
# The y of the eight points whose order divides 8; with either sign of x. Source: RFC 8032, section 5.1.
_SMALL_ORDER: Final = frozenset({0, 1, _FIELD - 1, _ORDER_8, _FIELD - _ORDER_8})


def _load_ed25519(secret: str) -> PublicKey:
    """Return the key to verify with. Raises ConfigError for a private key, and for a weak one."""
    require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if secret.startswith(PRIVATE_PREFIX):
        raise ConfigError(
            f"a private key ({PRIVATE_PREFIX}) cannot verify: give its public key, {PUBLIC_PREFIX}"
        )
    raw = _decode(secret, PUBLIC_PREFIX)
    if len(raw) != KEY_BYTES:
        raise ConfigError(f"an ed25519 public key is {KEY_BYTES} bytes, got {len(raw)}")
    _require_ed25519_strength(raw)
    return PublicKey("ed25519", _verifier(Ed25519PublicKey.from_public_bytes(raw).verify))


def _sign_ed25519(secret: str, content: bytes) -> bytes:
    """Return the raw signature by the private key `secret`. Raises ConfigError if it is unusable."""
    require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = _decode(secret, PRIVATE_PREFIX)
    # libsodium and its ports store the seed together with the public key.
    if len(raw) not in (KEY_BYTES, 2 * KEY_BYTES):
        raise ConfigError(f"an ed25519 private key is {KEY_BYTES} or {2 * KEY_BYTES} bytes, got {len(raw)}")
    private = Ed25519PrivateKey.from_private_bytes(raw[:KEY_BYTES])
    if raw[KEY_BYTES:] not in (b"", private.public_key().public_bytes_raw()):
        raise ConfigError("an ed25519 private key of 64 bytes ends in a public key that is not its own")
    return private.sign(content)


ED25519: Final = Algorithm("ed25519", _load_ed25519, _sign_ed25519, 64)
"""Keys are `whpk_` and `whsk_` with base64."""


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PublicKey:
    """Verifies with any key but that of an HMAC.

    `verify(content, signature)` returns whether the key made the signature.
    """

    algorithm: str
    verify: Callable[[bytes, bytes], bool]
    public: bool = True

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """Return True if this key made any of `signatures` over `content`."""
        # Verify every signature, as for HMAC; there are at most four.
        found = False
        for signature in signatures:
            found |= self.verify(content, signature)
        return found


Key: TypeAlias = HmacKey | PublicKey
"""One usable key; it verifies signatures and does not reveal itself."""


def _verifier(verify: Callable[..., None], *how: object) -> Callable[[bytes, bytes], bool]:
    """Return a function that returns False where `verify`, a method of cryptography's keys, raises."""
    from cryptography.exceptions import InvalidSignature

    def is_own(content: bytes, signature: bytes) -> bool:
        try:
            verify(signature, content, *how)
        except InvalidSignature:
            return False
        return True

    return is_own


def _require_ed25519_strength(raw: bytes) -> None:
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


# A shorter key can be factored, and a smaller exponent makes padding errors exploitable.
MIN_RSA_BITS: Final = 2_048
MIN_RSA_EXPONENT: Final = 65_537  # Source: NIST SP 800-131A


def _load_rsa(secret: str) -> PublicKey:
    """Return the key to verify with. Raises ConfigError for a private key, and for a weak one."""
    return PublicKey("rsa-sha256", _verifier(rsa_public_key(secret).verify, *pkcs1_sha256()))


def _sign_rsa(secret: str, content: bytes) -> bytes:
    """Return the raw signature by the private key `secret`. Raises ConfigError if it is unusable."""
    require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(secret.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: the PEM is encrypted
        raise ConfigError(
            "a key is not an unencrypted private key in PEM (-----BEGIN PRIVATE KEY-----)"
        ) from None
    if not isinstance(key, RSAPrivateKey):
        raise ConfigError(f"a private key in PEM must be RSA, got {type(key).__name__}")
    _require_rsa_strength(key.public_key())
    return key.sign(content, *pkcs1_sha256())


# As long as the key's modulus. cryptography is imported on use: HMAC alone does not need it.
RSA_SHA256: Final = Algorithm("rsa-sha256", _load_rsa, _sign_rsa, None)
"""RSA with SHA-256 and PKCS#1 v1.5 padding; keys are PEM text."""


def pkcs1_sha256() -> tuple[PKCS1v15, SHA256]:
    """Return the padding and the hash of RSA signatures."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    return PKCS1v15(), SHA256()


def pem_public_key(pem: str) -> PublicKeyTypes:
    """Load a public key of any kind from PEM. Raises ConfigError for anything else."""
    require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if "PRIVATE KEY" in pem:
        raise ConfigError(
            "a private key was given to verify with: give the public key, the receiver needs no more"
        )
    try:
        return load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError("a key is not a public key in PEM (-----BEGIN PUBLIC KEY-----)") from None


def rsa_public_key(pem: str) -> RSAPublicKey:
    """Load an RSA key that is strong enough from PEM. Raises ConfigError for anything else."""
    key = pem_public_key(pem)  # first: it says which extra is missing
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    if not isinstance(key, RSAPublicKey):
        raise ConfigError(f"a public key in PEM must be RSA, got {type(key).__name__}")
    _require_rsa_strength(key)
    return key


def _require_rsa_strength(key: RSAPublicKey) -> None:
    bits, exponent = key.key_size, key.public_numbers().e
    if bits < MIN_RSA_BITS:
        raise ConfigError(f"an RSA key of {bits} bits is too short: at least {MIN_RSA_BITS} are needed")
    if exponent < MIN_RSA_EXPONENT:
        raise ConfigError(
            f"an RSA key with the exponent {exponent} is weak: at least {MIN_RSA_EXPONENT} is needed"
        )


def algorithm_of(name: AlgorithmName, secret_encoding: SecretEncoding) -> Algorithm:
    """Return the algorithm of a name. The encoding is for HMAC: PEM and whpk_ are encodings of their own."""
    hmacs = (hmac_algorithm(each, SECRET_ENCODINGS[secret_encoding]) for each in get_args(HmacName))
    return next(each for each in (*hmacs, RSA_SHA256, ED25519) if each.name == name)
