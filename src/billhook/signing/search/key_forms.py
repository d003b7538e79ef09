"""Generate candidate keys from a secret: as it is, decoded, or with a prefix too many or too few.

For billhook.signing.search, whose comparisons take no constant time: an operator who runs it has the secret
anyway. Nothing here is for a receiver.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from billhook.errors import ConfigError
from billhook.signing.algorithms import (
    PUBLIC_PREFIX,
    Ed25519,
    RsaSha256,
    SecretEncoding,
    base64_secret,
    hex_secret,
)
from billhook.signing.secret_text import plain_secret
from billhook.signing.standard_webhooks import SECRET_PREFIX

__all__ = ["HMAC_COST_BYTES", "CandidateKey", "hmac_form", "key_forms"]

_PREFIX: Final = re.compile(r"[A-Za-z]{2,8}_(?=.)")
_ED25519_BYTES: Final = 32
RSA_COST_BYTES: Final = 1_000
HMAC_COST_BYTES: Final = 3_000
ED25519_COST_BYTES: Final = 150_000
"""What one look costs beside the bytes that are hashed, as bytes that are hashed in the same time."""


@dataclass(frozen=True, slots=True)
class CandidateKey:
    """One reading of one secret.

    `matching_signature(content)` is the captured signature over the content, None if there is none.
    `secret` and `encoding` are what a scheme has to be configured with; `change` says how that differs from
    the secret as given, and is "" if it does not.
    """

    number: int
    """Of the secret in its list, from 1."""
    algorithm: str
    secret: str = field(repr=False)
    encoding: SecretEncoding
    change: str
    matching_signature: Callable[[bytes], bytes | None] = field(repr=False)
    cost_bytes: int
    able: bool
    """Whether the request has anything that it may have made: an RSA key is known to have."""
    material: bytes = field(default=b"", repr=False)
    """The key itself, for HMAC alone."""


def key_forms(
    number: int, secret: str, signatures: Mapping[int, Collection[bytes]]
) -> Iterator[CandidateKey]:
    """Yield the readings of a secret that could have made one of `signatures`, which are by their length.

    Raises ConfigError for a key in PEM that is unusable.
    """
    if secret.lstrip().startswith("-----BEGIN"):
        yield from _pem_forms(number, secret, signatures)
        return
    yield from _ed25519_forms(number, secret, signatures.get(64, ()))
    for material, text, encoding, change in _materials(secret):
        yield hmac_form(number, material, text, encoding, change, signatures.get(32, ()))


def hmac_form(
    number: int,
    material: bytes,
    secret: str,
    encoding: SecretEncoding,
    change: str,
    signatures: Collection[bytes],
    digest: str = "sha256",
) -> CandidateKey:
    """Return the reading of a shared secret as the key `material`."""
    wanted = frozenset(signatures)

    def matching_signature(content: bytes) -> bytes | None:
        found = hmac.digest(material, content, digest)
        return found if found in wanted else None

    return CandidateKey(
        number,
        f"hmac-{digest}",
        secret,
        encoding,
        change,
        matching_signature,
        HMAC_COST_BYTES,
        bool(wanted),
        material,
    )


def _materials(secret: str) -> Iterator[tuple[bytes, str, SecretEncoding, str]]:
    """Yield key material, the secret to configure, its encoding, and what changed."""
    plain, surroundings = plain_secret(secret)
    if plain != secret:
        for material, text, encoding, change in _materials(plain):
            leave_out = f"leave out {surroundings}" if surroundings else ""
            yield material, text, encoding, ", and ".join(filter(None, [leave_out, change]))
        return
    yield secret.encode(), secret, "text", ""
    prefix = _PREFIX.match(secret)
    bare, leave = secret, ""
    if prefix is not None:
        bare, leave = secret[prefix.end() :], f"leave out its prefix {prefix[0]}"
        yield bare.encode(), bare, "text", leave
    else:
        longer = f"{SECRET_PREFIX}{secret}"
        yield longer.encode(), longer, "text", f"write {SECRET_PREFIX} before it"
    decoders: tuple[tuple[SecretEncoding, Callable[[str], bytes]], ...] = (
        ("hex", hex_secret),
        ("base64", base64_secret),
    )
    for encoding, decode in decoders:
        with suppress(ConfigError):
            yield decode(bare), bare, encoding, leave
    if set("-_") & set(bare):
        standard = bare.replace("-", "+").replace("_", "/")
        try:
            material = base64_secret(standard)
        except ConfigError:
            return
        change = "write + for each - in it, and / for each _"
        yield material, standard, "base64", f"{leave}, and {change}" if leave else change


def _ed25519_forms(number: int, secret: str, signatures: Collection[bytes]) -> Iterator[CandidateKey]:
    readings = [(secret, "")] if secret.startswith(PUBLIC_PREFIX) else []
    for decode in (hex_secret, base64_secret) if signatures else ():
        try:
            raw = decode(secret)
        except ConfigError:
            continue
        if len(raw) == _ED25519_BYTES:
            readings.append((_whpk(raw), "write it as whpk_ and the base64 of its 32 bytes"))
    for text, change in readings:
        try:
            key = Ed25519().load(text)
        except ConfigError:
            if not change:  # otherwise it is a shared secret
                raise
            continue
        yield _ed25519_form(number, text, change, key, signatures)


def _ed25519_form(
    number: int, text: str, change: str, key: Any, signatures: Collection[bytes]
) -> CandidateKey:
    def matching_signature(content: bytes) -> bytes | None:
        return next((raw for raw in signatures if key.matches(content, [raw])), None)

    cost = ED25519_COST_BYTES * max(1, len(signatures))
    return CandidateKey(
        number, Ed25519.name, text, "text", change, matching_signature, cost, bool(signatures)
    )


def _whpk(raw: bytes) -> str:
    return PUBLIC_PREFIX + base64.b64encode(raw).decode()


def _pem_forms(number: int, pem: str, signatures: Mapping[int, Collection[bytes]]) -> Iterator[CandidateKey]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    public: Any = None
    with suppress(ValueError, UnsupportedAlgorithm):
        public = load_pem_public_key(pem.encode())
    if isinstance(public, Ed25519PublicKey):
        text = _whpk(public.public_bytes_raw())
        change = "write it as whpk_ and the base64 of its last 32 bytes"
        yield _ed25519_form(number, text, change, Ed25519().load(text), signatures.get(64, ()))
    elif not isinstance(public, EllipticCurvePublicKey):  # such a key is for tokens alone
        RsaSha256().load(pem)  # raises unless it is a public RSA key, and says what it is
        digests = _signed_digests(public, signatures.get((public.key_size + 7) // 8, ()))

        def matching_signature(content: bytes) -> bytes | None:
            return digests.get(hashlib.sha256(content).digest())

        yield CandidateKey(
            number, RsaSha256.name, pem, "text", "", matching_signature, RSA_COST_BYTES, bool(digests)
        )


def _signed_digests(public: Any, signatures: Collection[bytes]) -> dict[bytes, bytes]:
    """Return the signatures that the private key did make, by the SHA-256 that each signs.

    An RSA signature shows what it signs, so no content has to be tried with the key.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    found: dict[bytes, bytes] = {}
    for raw in signatures:
        try:
            found[public.recover_data_from_signature(raw, PKCS1v15(), SHA256())] = raw
        except InvalidSignature:
            continue
    return found
